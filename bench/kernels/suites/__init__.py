"""Suites for pytest-benchmark: kernels timed beside what one would write without them.

Run one of them, bench_X.py: python -m pytest THE_FILE --benchmark-enable --benchmark-only -o python_files='bench_*.py'
"""
