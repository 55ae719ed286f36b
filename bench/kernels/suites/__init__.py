"""Suites for pytest-benchmark: kernels timed beside what one would write without them.

Run one: python -m pytest bench/kernels/suites/bench_X.py --benchmark-enable --benchmark-only -o python_files='bench_*.py'
"""
