"""Benchmarks of kernels, judges, GRPO and agreement, and their reports."""
