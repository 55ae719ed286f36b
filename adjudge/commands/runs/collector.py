"""The garbage collector, kept from what a command has loaded."""

from __future__ import annotations

import atexit
import gc
import sys


def freeze() -> None:
    """Have the collector, which stops everything, not look through libraries and model again.

    They are taken down at the end as well where Triton would else print all its types as leaks, as those built on
    nanobind do (3.9); that takes 0.7 s, which others are spared.
    """
    gc.freeze()
    triton = sys.modules.get("triton._C.libtriton")
    if triton is not None and type(triton.ir.builder).__module__ == "nanobind":
        atexit.register(gc.unfreeze)
