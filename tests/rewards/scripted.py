"""An engine that writes what a test says, and scores as a test says or as a real one does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from adjudge.engine.completion import Completion, FinishReason
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import AnyLabels, AnyPrompt, EngineFace, sets_of
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Score

Script = Callable[[str, int], str | tuple[str, FinishReason]]
"""From the prompt's text, and how often it was written before, to the text, and how it ended if not by itself."""

Grade = Callable[[str, Any], Score]
"""From the prompt's text and its labels to its score."""


class ScriptedEngine(EngineFace):
    """`asked` and `seeds` note every text that was wanted, in order, `scored` every prompt whose score was.

    Without a `grade` the engine behind it scores. `last_first` has the texts asked last come first.
    """

    def __init__(
        self, engine: EngineFace, script: Script, grade: Grade | None = None, *, last_first: bool = False
    ) -> None:
        super().__init__(engine.tokenizer)
        self.engine, self.script, self.grade, self.last_first = engine, script, grade, last_first
        self.name, self.fingerprint, self.dtype = "scripted", engine.fingerprint, engine.dtype
        self.asked: list[str] = []
        self.seeds: list[int] = []
        self.scored: list[str] = []

    @property
    def max_prompt_tokens(self) -> int:
        return self.engine.max_prompt_tokens

    def require_embeddings(self) -> None:
        raise AdjudgeError("scripted hands out no hidden states")

    def shown(self, prompt: AnyPrompt) -> str:
        """The prompt as the model sees it."""
        return self.tokenizer.decode(self.tokenizer.prompt(prompt))

    def score_iter(
        self, prompts: Sequence[AnyPrompt], labels: AnyLabels | Sequence[AnyLabels], **how: Any
    ) -> Iterator[tuple[int, Score]]:
        if self.grade is None:
            self.scored += map(self.shown, prompts)
            yield from self.engine.score_iter(prompts, labels, **how)
            return
        for place, (prompt, own) in enumerate(zip(prompts, sets_of(prompts, labels), strict=True)):
            score = self.grade(shown := self.shown(prompt), own)
            self.scored.append(shown)
            yield place, score

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
