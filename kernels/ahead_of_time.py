"""Compile Triton kernels for GPUs that are not here, as their launchers launch them, and read what they need.

`record` runs a launcher on tensors without memory (device "meta") and catches its launches; `Launch.compile` makes
machine code of one, specialised as Triton would specialise it: sizes divisible by 16, strides of one, parts that are
None switched off.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

TYPES = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.uint8: "u8",
    torch.bool: "i1",
}


@dataclass(frozen=True)
class MachineCode:
    """What a compiled kernel needs: registers a thread, bytes spilled a thread, bytes of shared memory a program."""

    kernel: str
    capability: int
    registers: int
    spilled: int
    shared: int


@dataclass(frozen=True)
class Launch:
    """A kernel and the arguments of one launch by name, options such as num_warps among them."""

    kernel: JITFunction[Any]
    arguments: dict[str, Any]

    def compile(self, capability: int) -> MachineCode:
        """Machine code for CUDA devices of `capability` (80, 90, 100, …); needs no device."""
        signature: dict[str, str] = {}
        constants: dict[str, Any] = {}
        attributes: dict[tuple[int], Any] = {}
        for index, parameter in enumerate(self.kernel.params):
            value = self.arguments[parameter.name]
            kind = "constexpr" if parameter.is_constexpr else _kind(value)
            signature[parameter.name] = kind
            if kind == "constexpr":
                constants[parameter.name] = value
            elif kind[0] == "*" or (isinstance(value, int) and value % 16 == 0):
                attributes[(index,)] = [["tt.divisibility", 16]]
        names = {parameter.name for parameter in self.kernel.params}
        options = {name: value for name, value in self.arguments.items() if name not in names}
        source = ASTSource(self.kernel, signature, constants, attributes)
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        registers, spilled = _resources(compiled.asm["cubin"])
        return MachineCode(self.kernel.__name__, capability, registers, spilled, compiled.metadata.shared)


def record(run: Callable[[], object], *modules: ModuleType) -> list[Launch]:
    """The launches of the kernels named in `modules` while `run` runs; nothing is executed."""
    launches: list[Launch] = []
    with _recorders(launches, modules):
        run()
    return launches


class _Recorder:
    """Stands in a launcher's place for a kernel."""

    def __init__(self, kernel: JITFunction[Any], launches: list[Launch]) -> None:
        self.kernel, self.launches = kernel, launches

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self._launch

    def _launch(self, *arguments: Any, **named: Any) -> None:
        positional = dict(zip(self.kernel.arg_names, arguments, strict=False))
        self.launches.append(Launch(self.kernel, positional | named))


@contextmanager
def _recorders(launches: list[Launch], modules: tuple[ModuleType, ...]) -> Iterator[None]:
    kernels = [(m, name, k) for m in modules for name, k in vars(m).items() if isinstance(k, JITFunction)]
    for module, name, kernel in kernels:
        setattr(module, name, _Recorder(kernel, launches))
    try:
        yield
    finally:
        for module, name, kernel in kernels:
            setattr(module, name, kernel)


def _kind(value: Any) -> str:
    """The type of an argument in a kernel's signature; None and 1 are compiled in."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value == 1):
        return "constexpr"
    if isinstance(value, torch.Tensor):
        return f"*{TYPES[value.dtype]}"
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return "i32" if abs(value) < 1 << 31 else "i64"
    return "fp32"


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers and spilled bytes, as the cuobjdump that comes with Triton reports them."""
    cuobjdump = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        report = subprocess.run([cuobjdump, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    used = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", report)}
    return used["REG"], used["STACK"] + used["LOCAL"]
