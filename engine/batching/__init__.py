"""Continuous batching: what calls ask for, step by step."""
