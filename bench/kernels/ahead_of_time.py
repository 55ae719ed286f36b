"""Compile Triton kernels for GPUs that are not here, as their launchers launch them, and read what they need.

`record` runs a launcher on tensors without memory (device "meta") and catches its launches; `Launch.compile` makes
machine code of one, specialised as Triton would specialise it: sizes divisible by 16, strides of one, parts that are
None switched off.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.compiler import ASTSource
from triton.knobs import compilation, nvidia
from triton.runtime.jit import JITFunction, KernelParam

from adjudge.kernels.dispatch import assuming

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
    """A kernel, the arguments of one launch by name, options such as num_warps among them, and what GPU it is for."""

    kernel: JITFunction[Any]
    arguments: dict[str, Any]
    capability: int

    def specialisation(self) -> dict[str, str]:
        """How Triton would specialise the kernel: the type of each argument, what is compiled in, what is aligned."""
        kinds = {name: _kind(value) for name, value in self.arguments.items()}
        for parameter in self.kernel.params:
            name, value = parameter.name, self.arguments[parameter.name]
            if parameter.is_constexpr or value is None or (_is_size(parameter, value) and value == 1):
                kinds[name] = f"constexpr {value}"
            elif kinds[name][0] == "*" or (_is_size(parameter, value) and value % 16 == 0):
                kinds[name] += " aligned"
        return kinds

    def compile(self) -> MachineCode:
        """Machine code for CUDA devices of the launch's capability; needs no device."""
        kinds = self.specialisation()
        signature = {parameter.name: kinds[parameter.name].split()[0] for parameter in self.kernel.params}
        constants = {name: self.arguments[name] for name, kind in signature.items() if kind == "constexpr"}
        aligned = [i for i, name in enumerate(signature) if kinds[name].endswith(" aligned")]
        attributes = {(index,): [["tt.divisibility", 16]] for index in aligned}
        options = {name: value for name, value in self.arguments.items() if name not in signature}
        source = ASTSource(self.kernel, signature, constants, attributes)
        with compilation.scope():
            compilation.disable_line_info = True  # which takes a sixth of the time and changes no instruction
            compiled = triton.compile(source, target=GPUTarget("cuda", self.capability, 32), options=options)
        registers, spilled = _resources(compiled.asm, self.capability)
        return MachineCode(self.kernel.__name__, self.capability, registers, spilled, compiled.metadata.shared)


def record(run: Callable[[], object], capability: int, *modules: ModuleType) -> list[Launch]:
    """The launches of the kernels named in `modules` while `run` runs as if for `capability`; nothing is executed."""
    launches: list[Launch] = []
    with assuming(capability), ExitStack() as stack:
        for module in modules:
            for name, kernel in list(vars(module).items()):
                if isinstance(kernel, JITFunction):
                    stack.callback(setattr, module, name, kernel)
                    setattr(module, name, _Recorder(kernel, capability, launches))
        run()
    return launches


class _Recorder:
    """Stands in a launcher's place for a kernel."""

    def __init__(self, kernel: JITFunction[Any], capability: int, launches: list[Launch]) -> None:
        self.kernel, self.capability, self.launches = kernel, capability, launches

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self._launch

    def _launch(self, *arguments: Any, **named: Any) -> None:
        positional = dict(zip(self.kernel.arg_names, arguments, strict=False))
        self.launches.append(Launch(self.kernel, positional | named, self.capability))


def _is_size(parameter: KernelParam, value: Any) -> bool:
    """Whether Triton compiles other code for other values: integers, unless the kernel forbids it."""
    return isinstance(value, int) and not isinstance(value, bool) and not parameter.do_not_specialize


def _kind(value: Any) -> str:
    """The type of an argument in a kernel's signature."""
    if isinstance(value, torch.Tensor):
        return f"*{TYPES[value.dtype]}"
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return "i32" if abs(value) < 1 << 31 else "i64"
    return "fp32"


def _resources(asm: dict[str, Any], capability: int) -> tuple[int, int]:
    """Registers and spilled bytes; ptxas, which takes long, is asked of the latter only where there is a stack."""
    with tempfile.TemporaryDirectory() as scratch:
        code, source = Path(scratch) / "kernel.cubin", Path(scratch) / "kernel.ptx"
        code.write_bytes(asm["cubin"])
        usage = re.search(r"REG:(\d+) STACK:(\d+)", _run(nvidia.cuobjdump.path, "-res-usage", code).stdout)
        target = re.search(r"^\.target (\w+)", asm["ptx"], re.MULTILINE)
        assert usage is not None and target is not None
        registers, stack = map(int, usage.groups())
        if not stack:
            return registers, 0
        source.write_text(asm["ptx"])
        ptxas = get_ptxas(capability).path
        report = _run(ptxas, "-v", f"--gpu-name={target[1]}", source, "-o", code).stderr
    return registers, int(re.findall(r"(\d+) bytes spill stores", report)[0])


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True)
