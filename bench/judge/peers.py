"""The peers of `adjudge bench judge` that score: other ways to get the same label log-probabilities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import torch

from adjudge.bench.judge.peer_models import LlamaCpp, PeerModels
from adjudge.bench.judge.questions import Questions
from adjudge.engine.radix import Tokens

Answer = TypeVar("Answer")
"""The labels' log-probabilities (list[float]), or the tokens written (list[int])."""

PADDED_BATCH = {"cpu": 4, "cuda": 32}


class Peer(ABC, Generic[Answer]):
    """Answers all questions in one run."""

    name: str
    is_reference = False

    @abstractmethod
    def run(self) -> tuple[list[Answer], int | None]:
        """The answers by prompt, and how many prompt tokens were computed (padding included; None: nobody knows)."""

    def close(self) -> None:
        """Let go of what the peer holds outside Python."""
        return None


class OneByOne(Peer[Answer]):
    """Answers one prompt after the other."""

    prompts: list[Tokens]

    @abstractmethod
    def answer(self, prompt: Tokens) -> tuple[Answer, int]:
        """The answer to one prompt, and how many of its tokens were computed."""

    def begin(self) -> None:
        """Forget what an earlier run has left."""
        return None

    def run(self) -> tuple[list[Answer], int]:
        """Answer every prompt alone."""
        self.begin()
        answers, tokens = zip(*map(self.answer, self.prompts), strict=True)
        return list(answers), sum(tokens)


class Transformers:
    """A model as transformers opens it, with its SDPA attention."""

    def __init__(self, questions: Questions, model: Any) -> None:
        self.questions, self.model, self.prompts = questions, model, questions.prompts

    def tensor(self, rows: list[list[int]]) -> torch.Tensor:
        """Token ids on the model's device."""
        return torch.tensor(rows, device=self.model.device)

    def read(self, logits_NV: torch.Tensor) -> list[list[float]]:
        """The labels' log-probabilities from rows of logits."""
        rows: list[list[float]] = torch.log_softmax(logits_NV.float(), -1)[:, self.questions.label_ids].tolist()
        return rows


class OneAtATime(Transformers, OneByOne[list[float]]):
    """One prompt a call, logits of the last position only: the reference for scores."""

    name = "transformers, one prompt at a time"
    is_reference = True

    @torch.inference_mode()
    def answer(self, prompt: Tokens) -> tuple[list[float], int]:
        """Run one prompt without a cache."""
        logits = self.model(self.tensor([list(prompt)]), use_cache=False, logits_to_keep=1).logits[:, -1]
        return self.read(logits)[0], len(prompt)


class Padded(Transformers, Peer[list[float]]):
    """Batches of prompts of similar length, padded, with logits for every position: the usual first version."""

    def __init__(self, questions: Questions, model: Any) -> None:
        super().__init__(questions, model)
        self.size = PADDED_BATCH[self.model.device.type]
        self.name = f"transformers, padded batches of {self.size}, full logits"

    @torch.inference_mode()
    def run(self) -> tuple[list[list[float]], int]:
        """Run the prompts sorted by length."""
        rows: dict[int, list[float]] = {}
        tokens = 0
        for batch in batches_by_length(self.prompts, self.size):
            width = max(len(self.prompts[index]) for index in batch)
            ids = self.tensor([[*self.prompts[i], *[0] * (width - len(self.prompts[i]))] for i in batch])
            mask = self.tensor([[1] * len(self.prompts[i]) + [0] * (width - len(self.prompts[i])) for i in batch])
            logits = self.model(ids, attention_mask=mask, use_cache=False).logits
            ends = logits[torch.arange(len(batch)), [len(self.prompts[index]) - 1 for index in batch]]
            rows.update(zip(batch, self.read(ends), strict=True))
            tokens += width * len(batch)
        return [rows[index] for index in range(len(self.prompts))], tokens


class PrefixReuse(Transformers, Peer[list[float]]):
    """transformers' own cache: the prefix that all questions of an order share once, then the questions as a batch."""

    name = "transformers, prefix cache reused by hand"

    @torch.inference_mode()
    def run(self) -> tuple[list[list[float]], int]:
        """Run each order's prefix, then its questions."""
        from transformers import DynamicCache

        rows: list[list[float]] = []
        tokens = 0
        size = self.questions.per_pair // 2
        for start in range(0, len(self.prompts), size):
            group = self.prompts[start : start + size]
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


class LlamaCppPeer(OneByOne[Answer]):
    """llama-cpp-python, prompt by prompt."""

    name = "llama-cpp-python, prefix kept between prompts"

    def __init__(self, questions: Questions, model: LlamaCpp) -> None:
        self.questions, self.model, self.prompts = questions, model, questions.prompts

    def begin(self) -> None:
        """Forget the last prompt."""
        self.model.forget()

    def close(self) -> None:
        """Free the model."""
        self.model.close()


class LlamaCppScores(LlamaCppPeer[list[float]]):
    """Scores by it."""

    def answer(self, prompt: Tokens) -> tuple[list[float], int]:
        """Evaluate one prompt from where it parts from the one before."""
        logits_V, computed = self.model.read(prompt)
        return torch.log_softmax(logits_V, -1)[self.questions.label_ids].tolist(), computed


class VLLMPeer(Peer[Answer]):
    """vLLM, all prompts in one call."""

    name = "vllm, automatic prefix caching"

    def __init__(self, questions: Questions, model: Any) -> None:
        self.questions, self.model = questions, model

    def outputs(self, **sampling: Any) -> tuple[list[Any], int]:
        """What it gives each prompt, greedily and from a cold cache, and how many prompt tokens it computed."""
        from vllm import SamplingParams

        self.model.reset_prefix_cache()
        prompts = [{"prompt_token_ids": list(prompt)} for prompt in self.questions.prompts]
        found = self.model.generate(prompts, SamplingParams(temperature=0.0, **sampling), use_tqdm=False)
        cached = sum(output.num_cached_tokens or 0 for output in found)
        return [output.outputs[0] for output in found], self.questions.prompt_tokens - cached


class VLLMScores(VLLMPeer[list[float]]):
    """Scores by it: one generated token, log-probabilities of the chosen tokens."""

    def run(self) -> tuple[list[list[float]], int]:
        """Generate one token for each prompt."""
        wanted = self.questions.label_ids
        outputs, computed = self.outputs(max_tokens=1, logprob_token_ids=wanted)
        return [[output.logprobs[0][i].logprob for i in wanted] for output in outputs], computed


def scoring_peers(questions: Questions, models: PeerModels) -> list[Peer[list[float]]]:
    """transformers in three ways, and every peer engine that is here."""
    kinds = (OneAtATime, Padded, PrefixReuse)
    peers: list[Peer[list[float]]] = [kind(questions, models.transformers) for kind in kinds]
    if models.llama_cpp is not None:
        peers.append(LlamaCppScores(questions, models.llama_cpp))
    if models.vllm is not None:
        peers.append(VLLMScores(questions, models.vllm))
    return peers


def batches_by_length(prompts: list[Tokens], size: int) -> list[list[int]]:
    """Places of prompts of similar length, `size` at a time."""
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    return [order[start : start + size] for start in range(0, len(order), size)]
