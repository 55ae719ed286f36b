"""The peers of `adjudge bench judge --mode generate`: other ways to write the same texts."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch

from adjudge.bench.judge.peer_models import PeerModels
from adjudge.bench.judge.peers import LlamaCppPeer, OneByOne, Peer, Transformers, VLLMPeer, batches_by_length
from adjudge.bench.judge.questions import Questions
from adjudge.engine.radix import Tokens

WRITING_BATCH = {"cpu": 16, "cuda": 64}
PAGE = 32
"""Tokens a page of continuous batching on CPU: it shares whole pages, and its default of 256 would share few."""
STEP_TOKENS = 512
"""Tokens a step of continuous batching on CPU; larger steps pay for a mask of all prompts against all."""


class WriterAlone(Transformers, OneByOne[list[int]]):
    """`generate` with its cache, one prompt a call: the reference for texts."""

    name = "transformers, one prompt at a time"
    is_reference = True

    @torch.inference_mode()
    def answer(self, prompt: Tokens) -> tuple[list[int], int]:
        """Write one text."""
        ids = self.tensor([list(prompt)])
        output = self.model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=greedy(self.questions))
        return output[0, len(prompt) :].tolist(), len(prompt)


class PaddedWriter(Transformers, Peer[list[int]]):
    """`generate` on batches of prompts of similar length, padded on the left."""

    def __init__(self, questions: Questions, model: Any) -> None:
        super().__init__(questions, model)
        self.size = WRITING_BATCH[self.model.device.type]
        self.name = f"transformers, padded batches of {self.size}"

    @torch.inference_mode()
    def run(self) -> tuple[list[list[int]], int]:
        """Write the texts of the prompts sorted by length."""
        texts: dict[int, list[int]] = {}
        tokens = 0
        for batch in batches_by_length(self.prompts, self.size):
            width = max(len(self.prompts[index]) for index in batch)
            ids = self.tensor([[*[0] * (width - len(self.prompts[i])), *self.prompts[i]] for i in batch])
            mask = self.tensor([[0] * (width - len(self.prompts[i])) + [1] * len(self.prompts[i]) for i in batch])
            output = self.model.generate(ids, attention_mask=mask, generation_config=greedy(self.questions))
            texts.update(zip(batch, output[:, width:].tolist(), strict=True))
            tokens += width * len(batch)
        return [texts[index] for index in range(len(self.prompts))], tokens


class ContinuousWriter(Transformers, Peer[list[int]]):
    """transformers' continuous batching, with its own sharing of prefixes, from a cold cache."""

    name = "transformers, continuous batching"

    def run(self) -> tuple[list[list[int]], int | None]:
        """Write all texts in one call; raises RuntimeError with the reason where it gives some up."""
        computed = 0

        def count(module: torch.nn.Module, arguments: tuple[torch.Tensor], output: torch.Tensor) -> None:
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


class LlamaCppTexts(LlamaCppPeer[list[int]]):
    """Texts by it."""

    def answer(self, prompt: Tokens) -> tuple[list[int], int]:
        """Write one text."""
        return self.model.write(prompt, self.questions.writes)


class VLLMTexts(VLLMPeer[list[int]]):
    """Texts by it."""

    def run(self) -> tuple[list[list[int]], int]:
        """Write all texts."""
        outputs, computed = self.outputs(max_tokens=self.questions.writes, ignore_eos=True)
        return [list(output.token_ids) for output in outputs], computed


def writing_peers(questions: Questions, models: PeerModels) -> list[Peer[list[int]]]:
    """transformers in three ways, and every peer engine that is here."""
    kinds = (WriterAlone, PaddedWriter, ContinuousWriter)
    peers: list[Peer[list[int]]] = [kind(questions, models.transformers) for kind in kinds]
    if models.llama_cpp is not None:
        peers.append(LlamaCppTexts(questions, models.llama_cpp))
    if models.vllm is not None:
        peers.append(VLLMTexts(questions, models.vllm))
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
