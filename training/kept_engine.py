"""`KeptEngine`: an engine whose answers a journal keeps, so that a run that was killed asks for none of them twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from adjudge.engine.completion import Completion
from adjudge.engine.embedding import Embedding
from adjudge.engine.engine_around import EngineAround
from adjudge.engine.face import AnyLabels, AnyPrompt, EngineFace, sets_of
from adjudge.engine.model_reward import ModelReward
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Reason, Score
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.journal import Journal, content_key
from adjudge.rewards.judges.asking import Mode
from adjudge.training.once import once

T = TypeVar("T")

KeptEmbedding = tuple[bytes | None, Reason | None, int]
"""An embedding as the journal keeps it: its values, why there are none, and the tokens of its prompt."""


class KeptEngine(EngineAround):
    """`engine`, but what it scored, wrote and embedded is kept in the `journal`, if any, under all that decides it.

    A judge of several rounds keeps verdicts, not what was said on the way to them: this keeps that too. Answers that
    lie in the moment (timeouts) are not kept; rewards are computed anew. Texts come one a prompt, each with its own
    seed. `asked` counts what the engine answered, `remembered` what the journal had.
    """

    def __init__(self, engine: EngineFace, journal: Journal | None) -> None:
        super().__init__(engine)
        self._journal = journal
        self.asked = self.remembered = 0

    def score_iter(
        self, prompts: Sequence[AnyPrompt], labels: AnyLabels | Sequence[AnyLabels], **how: Any
    ) -> Iterator[tuple[int, Score]]:
        """Like `score`, but yields (index, score) as soon as each prompt is done."""
        each = sets_of(prompts, labels)
        keys = [self._key("score", prompt, label_set) for prompt, label_set in zip(prompts, each, strict=True)]

        def ask(new: list[int]) -> Iterator[tuple[int, Score]]:
            wanted, over = [prompts[place] for place in new], [each[place] for place in new]
            return self._engine.score_iter(wanted, over, **how)

        return self._once(keys, ask, Score, lambda score: score.reason)

    def generate_iter(
        self,
        prompts: Sequence[AnyPrompt],
        sampling: Sampling | None = None,
        *,
        seeds: Sequence[int] | None = None,
        priority: int = 0,
        timeout: float | None = None,
        **options: Any,
    ) -> Iterator[tuple[int, Completion]]:
        """Like `generate`, but yields (place in the list, completion) as soon as each text ends."""
        sampling = Sampling.of(sampling, options, self.tokenizer.vocab_size)
        assert sampling.n == 1 and seeds is not None
        keys = [self._key("text", prompt, (sampling, seed)) for prompt, seed in zip(prompts, seeds, strict=True)]

        def ask(new: list[int]) -> Iterator[tuple[int, Completion]]:
            wanted, drawn = [prompts[place] for place in new], [seeds[place] for place in new]
            found = self._engine.generate_iter(wanted, sampling, seeds=drawn, priority=priority, timeout=timeout)
            return ((number, msgspec.structs.replace(text, text=well_formed(text.text))) for number, text in found)

        found = self._once(keys, ask, Completion, lambda text: text.finish_reason)
        return ((place, msgspec.structs.replace(text, prompt=place)) for place, text in found)

    def embed_iter(self, prompts: Sequence[AnyPrompt], **how: Any) -> Iterator[tuple[int, Embedding]]:
        """Like `embed`, but yields (index, embedding) as soon as each prompt is done."""
        keys = [self._key("embedding", prompt, None) for prompt in prompts]

        def ask(new: list[int]) -> Iterator[tuple[int, KeptEmbedding]]:
            wanted = [prompts[place] for place in new]
            for number, one in self._engine.embed_iter(wanted, **how):
                yield number, (None if one.values is None else one.values.tobytes(), one.reason, one.prompt_tokens)

        for place, (values, why, tokens) in self._once(keys, ask, KeptEmbedding, lambda kept: kept[1]):
            yield place, Embedding(None if values is None else np.frombuffer(values, np.float32), why, tokens)

    def reward_iter(self, prompts: Sequence[AnyPrompt], **how: Any) -> Iterator[tuple[int, ModelReward]]:
        """Like `reward`, but yields (index, reward) as soon as each prompt is done."""
        return self._engine.reward_iter(prompts, **how)

    def _key(self, what: str, prompt: AnyPrompt, how: Any) -> str:
        return content_key(what=what, prompt=prompt, how=how, model=self.identity)

    def _once(
        self,
        keys: Sequence[str],
        ask: Callable[[list[int]], Iterator[tuple[int, T]]],
        kind: Any,
        ended: Callable[[T], str | None],
    ) -> Iterator[tuple[int, T]]:
        def counted(new: list[int]) -> Iterator[tuple[int, T]]:
            for answer in ask(new):
                self.asked += 1
                yield answer

        def unpack(raw: bytes) -> T:
            self.remembered += 1
            answer: T = msgspec.msgpack.decode(raw, type=kind)  # JSON has no infinities
            return answer

        return once(self._journal, keys, counted, pack=msgspec.msgpack.encode, unpack=unpack, ended=ended)


def keeping_analyses(engine: EngineFace, journal: Journal | None, mode: Mode | None) -> EngineFace:
    """The engine for a judge, which keeps what is written for it too where it writes: in `mode` "reasoned"."""
    return KeptEngine(engine, journal) if mode == "reasoned" else engine
