"""An engine that writes what a test says and scores as a real one does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from adjudge.engine.completion import Completion, FinishReason
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import AnyLabels, AnyPrompt, EngineFace
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Score

Script = Callable[[str, int], str | tuple[str, FinishReason]]
"""From the prompt's text, and how often it was written before, to the text, and how it ended if not by itself."""


class ScriptedEngine(EngineFace):
    """`asked` and `seeds` note every text that was wanted, in order; `last_first` has those asked last come first."""

    def __init__(self, engine: EngineFace, script: Script, *, last_first: bool = False) -> None:
        super().__init__(engine.tokenizer)
        self.engine, self.script, self.last_first = engine, script, last_first
        self.name, self.fingerprint, self.dtype = "scripted", engine.fingerprint, engine.dtype
        self.asked: list[str] = []
        self.seeds: list[int] = []

    @property
    def max_prompt_tokens(self) -> int:
        return self.engine.max_prompt_tokens

    def require_embeddings(self) -> None:
        raise AdjudgeError("scripted hands out no hidden states")

    def score_iter(
        self, prompts: Sequence[AnyPrompt], labels: AnyLabels | Sequence[AnyLabels], **how: Any
    ) -> Iterator[tuple[int, Score]]:
        return self.engine.score_iter(prompts, labels, **how)

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
        assert sampling is not None and sampling.n == 1 and seeds is not None and len(seeds) == len(prompts)
        written: list[tuple[int, Completion]] = []
        for place, (prompt, seed) in enumerate(zip(prompts, seeds, strict=True)):
            tokens = self.tokenizer.prompt(prompt)
            shown = self.tokenizer.decode(tokens)
            text = self.script(shown, self.asked.count(shown))
            text, ended = (text, "stop") if isinstance(text, str) else text
            self.asked.append(shown)
            self.seeds.append(seed)
            ids = self.tokenizer.encode(text, False)
            written.append((place, Completion(place, 0, text, ids, ended, (), len(tokens))))
        yield from reversed(written) if self.last_first else written
