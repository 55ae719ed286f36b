"""The peers of `adjudge bench judge`: other ways to get the same label log-probabilities from the same weights."""

from __future__ import annotations

import importlib.util
import tempfile
from abc import ABC, abstractmethod
from ctypes import byref
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from adjudge.engine.sources import open_source, resolve

PADDED_BATCH = 4


class Questions(msgspec.Struct, frozen=True):
    """Token ids of the prompts, those of a pair together; the labels' token ids; and which weights to use how."""

    prompts: list[tuple[int, ...]]
    label_ids: list[int]
    per_pair: int
    model: str
    dtype: str
    device: str


class Peer(ABC):
    """Answers all questions in one run."""

    name: str
    is_reference = False

    @abstractmethod
    def run(self) -> tuple[list[list[float]], int]:
        """Log-probabilities of the labels by prompt, and how many tokens were computed (padding included)."""

    def close(self) -> None:
        """Let go of what the peer holds outside Python."""
        return None


class Transformers(Peer):
    """A model as transformers opens it, with its SDPA attention."""

    def __init__(self, questions: Questions, model: Any) -> None:
        self.questions, self.model = questions, model

    def tensor(self, rows: list[list[int]]) -> torch.Tensor:
        """Token ids on the model's device."""
        return torch.tensor(rows, device=self.model.device)

    def read(self, logits_NV: torch.Tensor) -> list[list[float]]:
        """The labels' log-probabilities from rows of logits."""
        rows: list[list[float]] = torch.log_softmax(logits_NV.float(), -1)[:, self.questions.label_ids].tolist()
        return rows


class OneAtATime(Transformers):
    """One prompt a call, logits of the last position only: the reference for scores."""

    name = "transformers, one prompt at a time"
    is_reference = True

    @torch.inference_mode()
    def run(self) -> tuple[list[list[float]], int]:
        """Run every prompt alone."""
        rows: list[list[float]] = []
        for prompt in self.questions.prompts:
            rows += self.read(self.model(self.tensor([list(prompt)]), use_cache=False, logits_to_keep=1).logits[:, -1])
        return rows, sum(map(len, self.questions.prompts))


class Padded(Transformers):
    """Batches of prompts of similar length, padded, with logits for every position: the usual first version."""

    name = f"transformers, padded batches of {PADDED_BATCH}, full logits"

    @torch.inference_mode()
    def run(self) -> tuple[list[list[float]], int]:
        """Run the prompts sorted by length."""
        prompts = self.questions.prompts
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        rows: dict[int, list[float]] = {}
        tokens = 0
        for start in range(0, len(order), PADDED_BATCH):
            batch = order[start : start + PADDED_BATCH]
            width = max(len(prompts[index]) for index in batch)
            ids = self.tensor([[*prompts[index], *[0] * (width - len(prompts[index]))] for index in batch])
            mask = self.tensor([[1] * len(prompts[i]) + [0] * (width - len(prompts[i])) for i in batch])
            logits = self.model(ids, attention_mask=mask, use_cache=False).logits
            ends = logits[torch.arange(len(batch)), [len(prompts[index]) - 1 for index in batch]]
            rows.update(zip(batch, self.read(ends), strict=True))
            tokens += width * len(batch)
        return [rows[index] for index in range(len(prompts))], tokens


class PrefixReuse(Transformers):
    """transformers' own cache: the prefix that all questions of an order share once, then the questions as a batch."""

    name = "transformers, prefix cache reused by hand"

    @torch.inference_mode()
    def run(self) -> tuple[list[list[float]], int]:
        """Run each order's prefix, then its questions."""
        from transformers import DynamicCache

        rows: list[list[float]] = []
        tokens = 0
        size = self.questions.per_pair // 2
        for start in range(0, len(self.questions.prompts), size):
            group = self.questions.prompts[start : start + size]
            shared = next(i for i, column in enumerate(zip(*group, strict=False)) if len(set(column)) > 1)
            cache: Any = DynamicCache(config=self.model.config)
            self.model(self.tensor([list(group[0][:shared])]), past_key_values=cache, logits_to_keep=1)
            cache.batch_repeat_interleave(len(group))
            width = max(map(len, group)) - shared
            ids = self.tensor([[*prompt[shared:], *[0] * (shared + width - len(prompt))] for prompt in group])
            mask = self.tensor([[1] * len(prompt) + [0] * (shared + width - len(prompt)) for prompt in group])
            logits = self.model(ids, attention_mask=mask, past_key_values=cache).logits
            rows += self.read(logits[torch.arange(len(group)), [len(prompt) - shared - 1 for prompt in group]])
            tokens += shared + width * len(group)
        return rows, tokens


class LlamaCpp(Peer):
    """llama-cpp-python on a GGUF file whose weights are first written out in float32, as all others use them."""

    name = "llama-cpp-python, prefix kept between prompts"

    def __init__(self, questions: Questions) -> None:
        import llama_cpp

        longest = max(map(len, questions.prompts))
        threads = torch.get_num_threads()
        self.questions = questions
        self.logits = llama_cpp.llama_get_logits_ith
        self.silence = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self.silence, None)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "float32.gguf"
            how = llama_cpp.llama_model_quantize_default_params()
            how.ftype, how.allow_requantize = llama_cpp.LLAMA_FTYPE_ALL_F32, True
            failed = llama_cpp.llama_model_quantize(questions.model.encode(), str(path).encode(), byref(how))
            if failed:
                raise RuntimeError(f"llama.cpp could not write {questions.model} in float32")
            exact = {"type_k": llama_cpp.GGML_TYPE_F32, "type_v": llama_cpp.GGML_TYPE_F32, "verbose": False}
            self.model = llama_cpp.Llama(
                str(path), n_ctx=longest + 8, n_batch=512, n_threads=threads, n_threads_batch=threads, **exact
            )

    def run(self) -> tuple[list[list[float]], int]:
        """Evaluate each prompt from where it parts from the one before."""
        rows: list[list[float]] = []
        tokens = 0
        self.model.reset()
        before: tuple[int, ...] = ()
        for prompt in self.questions.prompts:
            shared = 0
            while shared < min(len(before), len(prompt) - 1) and before[shared] == prompt[shared]:
                shared += 1
            self.model.n_tokens = shared
            self.model.eval(list(prompt[shared:]))
            pointer = self.logits(self.model.ctx, -1)
            logits = torch.from_numpy(np.ctypeslib.as_array(pointer, (self.model.n_vocab(),)))
            rows.append(torch.log_softmax(logits, -1)[self.questions.label_ids].tolist())
            tokens += len(prompt) - shared
            before = prompt
        return rows, tokens

    def close(self) -> None:
        """Free the model while its log still has somewhere to go."""
        self.model.close()


class VLLM(Peer):
    """vLLM with automatic prefix caching, one generated token, log-probabilities of the chosen tokens.

    Its CPU build wants VLLM_CPU_KVCACHE_SPACE (GiB), VLLM_ENABLE_V1_MULTIPROCESSING=0, and VLLM_CPU_OMP_THREADS_BIND
    with all cores: otherwise it leaves one out.
    """

    name = "vllm, automatic prefix caching"

    def __init__(self, questions: Questions, folder: str) -> None:
        from vllm import LLM

        longest = max(map(len, questions.prompts))
        self.questions = questions
        self.model = LLM(folder, dtype=questions.dtype, enforce_eager=True, max_model_len=longest + 8)

    def run(self) -> tuple[list[list[float]], int]:
        """Generate one token for each prompt from a cold cache."""
        from vllm import SamplingParams

        self.model.reset_prefix_cache()
        wanted = SamplingParams(max_tokens=1, temperature=0.0, logprob_token_ids=self.questions.label_ids)
        prompts = [{"prompt_token_ids": list(prompt)} for prompt in self.questions.prompts]
        outputs = self.model.generate(prompts, wanted, use_tqdm=False)
        rows = [[output.outputs[0].logprobs[0][i].logprob for i in self.questions.label_ids] for output in outputs]
        cached = sum(output.num_cached_tokens or 0 for output in outputs)
        return rows, sum(map(len, self.questions.prompts)) - cached


def available_peers(questions: Questions) -> list[Peer]:
    """transformers in three ways, and every peer engine that is installed and can open the model."""
    source = resolve(questions.model)
    opened = open_source(source, dtype=getattr(torch, questions.dtype), device=questions.device)
    peers: list[Peer] = [kind(questions, opened.model) for kind in (OneAtATime, Padded, PrefixReuse)]
    if questions.model.endswith(".gguf") and importlib.util.find_spec("llama_cpp"):
        peers.append(LlamaCpp(questions))
    if source.kind != "dummy" and importlib.util.find_spec("vllm"):
        peers.append(VLLM(questions, source.path))
    return peers
