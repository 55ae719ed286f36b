"""The models behind the peers of `adjudge bench judge`, opened on the same weights."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from ctypes import byref
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from adjudge.bench.judge.questions import Questions
from adjudge.engine.errors import reason
from adjudge.engine.models.sources import open_source, resolve
from adjudge.engine.tokens import Tokens


class PeerModels:
    """The model in every library that is installed and can open it; `absent` says why another is not here."""

    def __init__(self, questions: Questions) -> None:
        source = resolve(questions.model)
        opened = open_source(source, dtype=getattr(torch, questions.dtype), device=questions.device)
        self.transformers: Any = opened.model
        self.transformers.generation_config.eos_token_id = None  # texts are as long as asked for
        self.llama_cpp: LlamaCpp | None = None
        self.vllm: Any = None
        self.absent: list[str] = []
        if not find_spec("llama_cpp"):
            self.absent.append("llama-cpp-python: not installed (pip install llama-cpp-python)")
        elif not questions.model.endswith(".gguf"):
            self.absent.append("llama-cpp-python: reads .gguf files only, and --model names none")
        else:
            self.llama_cpp = self._opened("llama-cpp-python", lambda: LlamaCpp(questions))
        if not find_spec("vllm"):
            self.absent.append("vllm: not installed (pip install vllm, in an environment of its own)")
        elif source.kind == "dummy":
            self.absent.append("vllm: reads folders and hub ids only, and --model is a dummy")
        else:
            self.vllm = self._opened("vllm", lambda: _open_vllm(questions, source.path))

    def _opened(self, name: str, open_model: Callable[[], Any]) -> Any:
        """The model, or None and why a library that is installed did not open it."""
        try:
            return open_model()
        except Exception as error:
            self.absent.append(f"{name}: did not open the model ({reason(error)})")
            return None


class LlamaCpp:
    """llama-cpp-python on a GGUF file whose weights are first written out in float32, as all others use them.

    A prompt is evaluated from where it parts from the one before.
    """

    def __init__(self, questions: Questions) -> None:
        import llama_cpp

        threads = torch.get_num_threads()
        self._logits_of_row = llama_cpp.llama_get_logits_ith
        self._silence = llama_cpp.llama_log_callback(lambda *_: None)
        self._before: Tokens = ()
        llama_cpp.llama_log_set(self._silence, None)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "float32.gguf"
            how = llama_cpp.llama_model_quantize_default_params()
            how.ftype, how.allow_requantize = llama_cpp.LLAMA_FTYPE_ALL_F32, True
            failed = llama_cpp.llama_model_quantize(questions.model.encode(), str(path).encode(), byref(how))
            if failed:
                raise RuntimeError(f"llama.cpp could not write {questions.model} in float32")
            exact = {"type_k": llama_cpp.GGML_TYPE_F32, "type_v": llama_cpp.GGML_TYPE_F32, "verbose": False}
            self._model = llama_cpp.Llama(
                str(path), n_ctx=questions.longest + 8, n_batch=512, n_threads=threads, n_threads_batch=threads, **exact
            )

    def forget(self) -> None:
        """Start over without a prompt before the next."""
        self._model.reset()
        self._before = ()

    def read(self, prompt: Tokens) -> tuple[torch.Tensor, int]:
        """Logits [V] after the prompt, and how many of its tokens were computed."""
        shared = 0
        while shared < min(len(self._before), len(prompt) - 1) and self._before[shared] == prompt[shared]:
            shared += 1
        self._model.n_tokens = shared
        self._model.eval(list(prompt[shared:]))
        self._before = prompt
        return self._logits(), len(prompt) - shared

    def write(self, prompt: Tokens, count: int) -> tuple[list[int], int]:
        """The `count` most probable tokens after the prompt, one after the other, and its tokens computed."""
        logits_V, computed = self.read(prompt)
        written = [int(logits_V.argmax())]
        while len(written) < count:
            self._model.eval(written[-1:])
            written.append(int(self._logits().argmax()))
        return written, computed

    def close(self) -> None:
        """Free the model while its log still has somewhere to go."""
        self._model.close()

    def _logits(self) -> torch.Tensor:
        return torch.from_numpy(
            np.ctypeslib.as_array(self._logits_of_row(self._model.ctx, -1), (self._model.n_vocab(),))
        )


def _open_vllm(questions: Questions, folder: str) -> Any:
    """vLLM with automatic prefix caching.

    Its CPU build wants VLLM_CPU_KVCACHE_SPACE (GiB), VLLM_ENABLE_V1_MULTIPROCESSING=0, and VLLM_CPU_OMP_THREADS_BIND
    with all cores: otherwise it leaves one out.
    """
    from vllm import LLM

    # It asks all objects of all modules for their __dict__, and llvmlite's library answers with a function.
    library = sys.modules.pop("llvmlite.binding.ffi", None)
    try:
        return LLM(folder, dtype=questions.dtype, enforce_eager=True, max_model_len=questions.longest + 8)
    finally:
        if library is not None:
            sys.modules["llvmlite.binding.ffi"] = library
