"""The peers of `adjudge bench judge`: other ways to get the same label log-probabilities, or the same texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from adjudge.bench.judge.peer_models import LlamaCpp, PeerModels
from adjudge.bench.judge.questions import Questions
from adjudge.engine.tokens import Tokens

Answer = Sequence[float]
"""The labels' log-probabilities, or the tokens written."""

PADDED_BATCH = {"cpu": 4, "cuda": 32}
WRITING_BATCH = {"cpu": 16, "cuda": 64}
PAGE = 32
"""Tokens a page of continuous batching on CPU: it shares whole pages, and its default of 256 would share few."""
STEP_TOKENS = 512
"""Tokens a step of continuous batching on CPU; larger steps pay for a mask of all prompts against all."""


class Peer(ABC):
    """Answers all questions in one run."""

    name: str
    is_reference = False

    @abstractmethod
    def run(self) -> tuple[Sequence[Answer], int | None]:
        """The answers by prompt, and how many prompt tokens were computed (padding included; None: nobody knows)."""

    def close(self) -> None:
        """Let go of what the peer holds outside Python."""
        return None


class OneByOne(Peer):
    """Answers one prompt after the other."""

    prompts: list[Tokens]

    @abstractmethod
    def answer(self, prompt: Tokens) -> tuple[Answer, int]:
        """The answer to one prompt, and how many of its tokens were computed."""

    def begin(self) -> None:
        """Forget what an earlier run has left."""
        return None

    def run(self) -> tuple[Sequence[Answer], int]:
        """Answer every prompt alone."""
        self.begin()
        answers, tokens = zip(*map(self.answer, self.prompts), strict=True)
        return answers, sum(tokens)


class Transformers:
    """A model as transformers opens it, with its SDPA attention."""

    def __init__(self, questions: Questions, model: Any) -> None:
        self.questions, self.model, self.prompts = questions, model, questions.prompts

    def padded(self, rows: Sequence[Tokens], side: Literal["left", "right"] = "right") -> tuple[Tensor, Tensor]:
        """Token ids [B, T] on the model's device, padded to the longest row, and a mask that is 1 where they are."""
        ids_BT, mask_BT = (
            pad_sequence(tensors, batch_first=True, padding_side=side).to(self.model.device)
            for tensors in ([torch.tensor(row) for row in rows], [torch.ones(len(row)).long() for row in rows])
        )
        return ids_BT, mask_BT

    def read(self, logits_NV: Tensor) -> list[list[float]]:
        """The labels' log-probabilities from rows of logits."""
        rows: list[list[float]] = torch.log_softmax(logits_NV.float(), -1)[:, self.questions.label_ids].tolist()
        return rows

    def write(self, ids_BT: Tensor, mask_BT: Tensor) -> list[list[int]]:
        """The texts that `generate` with its cache writes after prompts that end together."""
        output = self.model.generate(ids_BT, attention_mask=mask_BT, generation_config=greedy(self.questions))
        texts: list[list[int]] = output[:, ids_BT.shape[1] :].tolist()
        return texts


class OneAtATime(Transformers, OneByOne):
    """One prompt a call, of scores the logits of the last position only: the reference."""

    name = "transformers, one prompt at a time"
    is_reference = True

    @torch.inference_mode()
    def answer(self, prompt: Tokens) -> tuple[Answer, int]:
        """Run one prompt without a cache, or write one text."""
        ids_1T, mask_1T = self.padded([prompt])
        if self.questions.writes:
            return self.write(ids_1T, mask_1T)[0], len(prompt)
        return self.read(self.model(ids_1T, use_cache=False, logits_to_keep=1).logits[:, -1])[0], len(prompt)


class Padded(Transformers, Peer):
    """Batches of prompts of similar length, padded, of scores with logits for every position: the usual first version.

    Texts are written after prompts that are padded on the left.
    """

    def __init__(self, questions: Questions, model: Any) -> None:
        super().__init__(questions, model)
        self.size = (WRITING_BATCH if questions.writes else PADDED_BATCH)[self.model.device.type]
        self.name = f"transformers, padded batches of {self.size}{'' if questions.writes else ', full logits'}"

    @torch.inference_mode()
    def run(self) -> tuple[Sequence[Answer], int]:
        """Run the prompts sorted by length."""
        order = sorted(range(len(self.prompts)), key=lambda index: len(self.prompts[index]))
        answers: dict[int, Answer] = {}
        tokens = 0
        for start in range(0, len(order), self.size):
            batch = order[start : start + self.size]
            prompts = [self.prompts[index] for index in batch]
            answers.update(zip(batch, self._answers(prompts), strict=True))
            tokens += max(map(len, prompts)) * len(batch)
        return [answers[index] for index in range(len(self.prompts))], tokens

    def _answers(self, prompts: list[Tokens]) -> Sequence[Answer]:
        if self.questions.writes:
            return self.write(*self.padded(prompts, "left"))
        ids_BT, mask_BT = self.padded(prompts)
        logits_BTV = self.model(ids_BT, attention_mask=mask_BT, use_cache=False).logits
        return self.read(logits_BTV[torch.arange(len(prompts)), [len(prompt) - 1 for prompt in prompts]])


class PrefixReuse(Transformers, Peer):
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
            self.model(self.padded([group[0][:shared]])[0], past_key_values=cache, logits_to_keep=1)
            cache.batch_repeat_interleave(len(group))
            ids_BT, mask_BT = self.padded([prompt[shared:] for prompt in group])
            mask = torch.nn.functional.pad(mask_BT, (shared, 0), value=1)
            logits_BTV = self.model(ids_BT, attention_mask=mask, past_key_values=cache).logits
            ends = [len(prompt) - shared - 1 for prompt in group]
            rows += self.read(logits_BTV[torch.arange(len(group)), ends])
            tokens += shared + ids_BT.numel()
        return rows, tokens


class ContinuousWriter(Transformers, Peer):
    """transformers' continuous batching, with its own sharing of prefixes, from a cold cache."""

    name = "transformers, continuous batching"

    def run(self) -> tuple[list[list[int]], int | None]:
        """Write all texts in one call; raises RuntimeError with the reason where it gives some up."""
        computed = 0

        def count(module: torch.nn.Module, arguments: tuple[Tensor], output: Tensor) -> None:
            nonlocal computed
            computed += arguments[0].numel()

        hook = self.model.get_input_embeddings().register_forward_hook(count)
        try:
            outputs = self.model.generate_batch([list(prompt) for prompt in self.prompts], **continuous(self.questions))
        finally:
            hook.remove()
        if failed := [output.error for output in outputs.values() if output.error is not None]:
            raise RuntimeError(failed[0])
        if len(outputs) < len(self.prompts):
            raise RuntimeError(f"{len(self.prompts) - len(outputs)} of {len(self.prompts)} texts never came")
        texts = [output.generated_tokens for output in outputs.values()]
        if self.model.device.type != "cpu":
            return texts, None  # a CUDA graph computes tokens that no hook sees
        return texts, computed - sum(len(text) - 1 for text in texts)  # a text's last token is not computed


class LlamaCppPeer(OneByOne):
    """llama-cpp-python, prompt by prompt."""

    name = "llama-cpp-python, prefix kept between prompts"

    def __init__(self, questions: Questions, model: LlamaCpp) -> None:
        self.questions, self.model, self.prompts = questions, model, questions.prompts

    def begin(self) -> None:
        """Forget the last prompt."""
        self.model.forget()

    def answer(self, prompt: Tokens) -> tuple[Answer, int]:
        """Write one text, or evaluate one prompt, from where it parts from the one before."""
        if self.questions.writes:
            return self.model.write(prompt, self.questions.writes)
        logits_V, computed = self.model.read(prompt)
        return torch.log_softmax(logits_V, -1)[self.questions.label_ids].tolist(), computed

    def close(self) -> None:
        """Free the model."""
        self.model.close()


class VLLMPeer(Peer):
    """vLLM, all prompts in one call."""

    name = "vllm, automatic prefix caching"

    def __init__(self, questions: Questions, model: Any) -> None:
        self.questions, self.model = questions, model

    def run(self) -> tuple[Sequence[Answer], int]:
        """Write all texts, or generate one token for each prompt, with log-probabilities of chosen tokens."""
        wanted = self.questions.label_ids
        if self.questions.writes:
            outputs, computed = self.outputs(max_tokens=self.questions.writes, ignore_eos=True)
            return [list(output.token_ids) for output in outputs], computed
        outputs, computed = self.outputs(max_tokens=1, logprob_token_ids=wanted)
        return [[output.logprobs[0][i].logprob for i in wanted] for output in outputs], computed

    def outputs(self, **sampling: Any) -> tuple[list[Any], int]:
        """What it gives each prompt, greedily and from a cold cache, and how many prompt tokens it computed."""
        from vllm import SamplingParams

        self.model.reset_prefix_cache()
        prompts = [{"prompt_token_ids": list(prompt)} for prompt in self.questions.prompts]
        found = self.model.generate(prompts, SamplingParams(temperature=0.0, **sampling), use_tqdm=False)
        cached = sum(output.num_cached_tokens or 0 for output in found)
        return [output.outputs[0] for output in found], self.questions.prompt_tokens - cached


def peers_of(questions: Questions, models: PeerModels) -> list[Peer]:
    """transformers in three ways, and every peer engine that is here."""
    third = ContinuousWriter if questions.writes else PrefixReuse
    peers: list[Peer] = [kind(questions, models.transformers) for kind in (OneAtATime, Padded, third)]
    if models.llama_cpp is not None:
        peers.append(LlamaCppPeer(questions, models.llama_cpp))
    if models.vllm is not None:
        peers.append(VLLMPeer(questions, models.vllm))
    return peers


def greedy(questions: Questions, end_id: int | None = None) -> Any:
    """transformers' settings for the most probable tokens, as many as asked for (one where scores are)."""
    from transformers import GenerationConfig

    settings: Any = GenerationConfig
    return settings(max_new_tokens=max(1, questions.writes), do_sample=False, eos_token_id=end_id, pad_token_id=0)


def continuous(questions: Questions) -> dict[str, Any]:
    """Arguments of transformers' continuous batching: on CPU a cache as large as adjudge's, on a GPU its own choice."""
    from transformers import ContinuousBatchingConfig

    settings: Any = ContinuousBatchingConfig
    config = settings()
    if torch.device(questions.device).type == "cpu":
        wanted = sum(-(-(len(prompt) + questions.writes) // PAGE) + 1 for prompt in questions.prompts)
        pages = min(wanted, questions.cache_tokens // PAGE)
        known = {field.name for field in fields(settings)}
        page = "page_size" if "page_size" in known else "block_size"  # the latter up to transformers 5.17 at least
        config = settings(**{page: PAGE}, num_blocks=pages, max_batch_tokens=STEP_TOKENS)
    return {"generation_config": greedy(questions, end_id=-1), "continuous_batching_config": config}
