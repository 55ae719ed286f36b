"""A writing benchmark made of good texts: genre, quality, and the instructions that would lead to each text.

Source: Tree of Writing, 4.3 to 4.5 (HoWToBench). There people choose what is left out of a text to be completed, and
check every row; here chance chooses, and the rows are to be read before they are used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from adjudge.engine.face import EngineFace
from adjudge.engine.score import LEAST_MASS, Score
from adjudge.engine.text.labels import Labels
from adjudge.engine.text.prompt import Message, Prompt
from adjudge.rewards.judges import template
from adjudge.rewards.records.rows import Row
from adjudge.rewards.words import count_words
from adjudge.training.stages import Passed, Texts, Unusable, json_of, object_schema, passed
from adjudge.training.writing.disturbances import FOLDER
from adjudge.training.writing.genres import GENRES, Genre, genre_of
from adjudge.training.writing.passages import Language, language_of
from adjudge.training.writing.texts import Source

QUALITY = Labels(("1", "2", "3", "4", "5"), terminator="]]")
LEAST = 4.0
"""The quality from which on a text is kept, as published."""
TRAITS = 4
OTHER: dict[Language, tuple[str, ...]] = {
    "en": ("subject", "content", "structure", "language and style"),
    "zh": ("题材", "内容", "结构", "语言与风格"),
}
"""The traits of a text whose genre is of the user's own naming."""
THEME_WORDS = {"en": 5, "zh": 15}
SUMMARY_WORDS = {"en": 100, "zh": 150}
"""Words of a theme and of a summary at most; a Chinese character counts as one."""
QUOTE = {"en": 60, "zh": 24}
"""Characters in a row that count as quoted from the text: an instruction must not give its answer away."""

_TEXT = {"type": "string"}
SCHEMA = object_schema(
    theme=_TEXT,
    summary=_TEXT,
    requirements={"type": "array", "items": _TEXT, "minItems": TRAITS, "maxItems": TRAITS},
)


class Construction(msgspec.Struct, frozen=True):
    """What must be asked for to get a text: its theme, a summary, and a requirement for each trait of its genre."""

    theme: str
    summary: str
    requirements: tuple[str, ...]


class Candidate(msgspec.Struct, frozen=True):
    """A text on its way into a benchmark, with what is known of it by now; `truncated` texts were judged shortened."""

    source: Source
    language: Language
    genre: str | None = None
    genre_probability: float | None = None
    quality: float | None = None
    construction: Construction | None = None
    truncated: bool = False

    @property
    def text(self) -> str:
        """The text itself."""
        return self.source.text

    @property
    def traits(self) -> tuple[str, ...]:
        """By what texts of its genre are described."""
        return OTHER[self.language] if self.known_genre is None else self.known_genre.traits

    @property
    def known_genre(self) -> Genre | None:
        """Its genre, unless that is of the user's own naming."""
        return genre_of(self.genre or "", self.language)

    @property
    def record(self) -> Mapping[str, Any]:
        """As a dropped one is written: the row and what was found."""
        return {**self.source.columns, "id": self.source.id, **self.findings}

    @property
    def findings(self) -> dict[str, Any]:
        """What the stages found."""
        names = ("language", "genre", "genre_probability", "quality", "truncated")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def candidates_of(rows: Sequence[Row]) -> list[Candidate]:
    """The texts of rows; one with a `genre` has its genre. Raises AdjudgeError for a row without a text."""
    found = []
    for number, row in enumerate(rows, 1):
        source = Source.of(row, number, "a benchmark")
        genre = row.optional_text("genre", "a benchmark")
        found.append(Candidate(source, language_of(source.text), genre))
    return found


class Building:
    """The stages that ask a model about texts: `engine` scores, `texts` writes by `SCHEMA`.

    What abstains or has less mass than `min_mass` is dropped. Texts too long for the model are shortened in the middle.
    """

    def __init__(self, engine: EngineFace, texts: Texts, *, min_mass: float = LEAST_MASS, least: float = LEAST) -> None:
        self.engine, self.texts, self.min_mass, self.least = engine, texts, min_mass, least

    def classify(self, candidates: Sequence[Candidate]) -> Passed[Candidate]:
        """Every text with the most probable genre; those that have one already keep it, blank ones are dropped."""
        return passed("classify", candidates, self._classified(candidates))

    def filter(self, candidates: Sequence[Candidate]) -> Passed[Candidate]:
        """The texts whose expected quality, of 1 to 5, is at least `least`."""
        return passed("filter", candidates, self._filtered(candidates))

    def construct(self, candidates: Sequence[Candidate]) -> Passed[Candidate]:
        """The texts, each with what would have to be asked for to get it; what quotes from its text is dropped."""
        return passed("construct", candidates, self._constructed(candidates))

    def _classified(self, candidates: Sequence[Candidate]) -> Iterator[tuple[int, Candidate | Unusable]]:
        asking: list[tuple[int, Candidate]] = []
        for place, one in enumerate(candidates):
            if not one.text.strip():
                yield place, Unusable("empty")
            elif one.genre is not None:
                yield place, one
            else:
                asking.append((place, one))
        for language, genres in GENRES.items():
            places = [place for place, one in asking if one.language == language]
            labels = Labels(tuple(genres))  # no name begins another, so that nothing need end one
            asked = [self._asked(candidates[place], asked="genre", genres=[*genres.values()]) for place in places]
            for number, score in self.engine.score_iter([prompt for prompt, _ in asked], labels):
                if (reason := self._abstained(score)) is not None:
                    yield places[number], reason
                    continue
                probability = max(score.probabilities or (0.0,))
                found: dict[str, Any] = {"genre": score.best, "genre_probability": probability}
                yield (
                    places[number],
                    msgspec.structs.replace(candidates[places[number]], truncated=asked[number][1], **found),
                )

    def _filtered(self, candidates: Sequence[Candidate]) -> Iterator[tuple[int, Candidate | Unusable]]:
        asked = [self._asked(one, asked="quality", genre=one.known_genre) for one in candidates]
        for place, score in self.engine.score_iter([prompt for prompt, _ in asked], QUALITY):
            one = candidates[place]
            if (reason := self._abstained(score)) is not None:
                yield place, reason
            elif (score.expected or 0.0) < self.least:
                yield place, Unusable("low_quality")
            else:
                cut = one.truncated or asked[place][1]
                yield place, msgspec.structs.replace(one, quality=score.expected, truncated=cut)

    def _constructed(self, candidates: Sequence[Candidate]) -> Iterator[tuple[int, Candidate | Unusable]]:
        for language in GENRES:
            places = [place for place, one in enumerate(candidates) if one.language == language]
            some = [candidates[place] for place in places]
            prompts = [self.texts.prompt(*_words(one, asked="construction", traits=one.traits)) for one in some]
            for number, found in self.texts.write(prompts, partial(_read, language=language)):
                if isinstance(found, Construction) and _quotes(some[number], found):
                    yield places[number], Unusable("quotes_the_text")
                elif isinstance(found, Construction):
                    yield places[number], msgspec.structs.replace(some[number], construction=found)
                else:
                    yield places[number], found

    def _asked(self, one: Candidate, **trusted: Any) -> tuple[Prompt, bool]:
        prompts, truncated = self.engine.fit([self.engine.chat(*_words(one, **trusted))])
        return prompts[0], truncated

    def _abstained(self, score: Score) -> Unusable | None:
        if score.reason is not None:
            return Unusable(score.reason)
        return Unusable("low_mass") if score.mass is not None and score.mass < self.min_mass else None


def _words(one: Candidate, **trusted: Any) -> tuple[list[Message], str]:
    return template.load("build", one.language, FOLDER).render(data={"text": one.text}, **trusted)


def _read(text: str, language: Language) -> Construction:
    """The construction that a text holds; raises Unusable with the reason."""
    found = json_of(Construction)(text)
    if len(found.requirements) != TRAITS:
        raise Unusable("unparsable")
    if not all(part.strip() for part in (found.theme, found.summary, *found.requirements)):
        raise Unusable("empty")
    if count_words(found.theme) > THEME_WORDS[language]:
        raise Unusable("theme_too_long")
    if count_words(found.summary) > SUMMARY_WORDS[language]:
        raise Unusable("summary_too_long")
    return found


def _quotes(one: Candidate, found: Construction) -> bool:
    """Whether a stretch of the text stands in what is told about it."""
    length, text = QUOTE[one.language], " ".join(one.text.split())
    told = [" ".join(part.split()) for part in (found.theme, found.summary, *found.requirements)]
    return any(part[start : start + length] in text for part in told for start in range(len(part) - length + 1))
