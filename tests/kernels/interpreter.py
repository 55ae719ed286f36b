"""Triton's interpreter, which takes about 10 ms a program: less of what takes its time."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any


def hasten() -> None:
    """Leave out what takes half of the interpreter's time: a GPU does not look for overflows of integers either, the
    language need not be patched for every function of a kernel that has been patched for the kernel, and types that
    are the same need not be worked out for every value."""
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    builder.options = replace(builder.options, sanitize_overflow=False)
    patch, first = interpreter._patch_builtin, {}

    def patch_once(package: Any, *how: Any) -> None:
        if package not in first:
            first[package] = next((name for name in dir(package) if tl.core.is_builtin(getattr(package, name))), "")
        if first[package] and tl.core.is_builtin(getattr(package, first[package])):
            patch(package, *how)

    interpreter._patch_builtin = patch_once
    _keep_types()


def _keep_types() -> None:
    """Types that are the same are worked out once, and not for every value."""
    import triton.language as tl
    from triton.runtime import interpreter

    block, tensor, as_numpy = tl.core.block_type.__init__, tl.core.tensor.__init__, interpreter._get_np_dtype
    blocks: dict[tuple[Any, ...], dict[str, Any]] = {}
    tensors: dict[str, dict[str, Any]] = {}
    of_numpy: dict[str, Any] = {}

    def make_block(self: Any, element_ty: Any, shape: Sequence[Any]) -> None:
        key = (element_ty.name, *(getattr(size, "value", size) for size in shape))
        if key not in blocks:
            block(self, element_ty, shape)
            blocks[key] = dict(vars(self))
        vars(self).update(blocks[key])

    def make_tensor(self: Any, handle: Any, type: Any) -> None:
        if type.name not in tensors:
            tensor(self, handle, type)
            tensors[type.name] = dict(vars(self))
        vars(self).update(tensors[type.name], handle=handle, type=type)

    def numpy_type(type: Any) -> Any:
        if type.name not in of_numpy:
            of_numpy[type.name] = as_numpy(type)
        return of_numpy[type.name]

    tl.core.block_type.__init__, tl.core.tensor.__init__ = make_block, make_tensor
    interpreter._get_np_dtype = numpy_type


@contextmanager
def only_programs(of_grid: Mapping[int, Sequence[int]]) -> Iterator[None]:
    """Within the block, the interpreter runs only these programs of launches of that many; a GPU runs all of them."""
    from triton.runtime import interpreter

    def chosen(*bounds: int) -> Any:
        whole = builtins.range(*bounds)
        return of_grid.get(len(whole), whole) if len(bounds) == 1 else whole

    interpreter.range = chosen  # type: ignore[attr-defined]  # it walks its grid with `range(grid[0])`
    try:
        yield
    finally:
        del interpreter.range  # type: ignore[attr-defined]
