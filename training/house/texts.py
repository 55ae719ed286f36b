"""The texts of a recipe's sources, as sentences, and what is common in them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.row_files import coding_of, read_rows
from adjudge.rewards.records.rows import Row, lines_of
from adjudge.training.house.recipe import TextFile
from adjudge.training.writing.passages import sentences

SUFFIXES = (".txt", ".md")
FEWEST = 3
"""Sentences of the shortest text that can be made worse by degrees."""
MOST_TEXTS = 26
"""Texts beside one story that a teacher scored."""
LONGEST_SENTENCE = 60
"""Words; what is longer at a text's end is no sentence but a list, a table or babble."""

_TOKEN = re.compile(r"\w+(?:['’]\w+)?|[^\w\s]")
_ENDED = re.compile(r"""[.!?…]["'”’)*]*$""")
_REPLY = re.compile(r"(?:sure|certainly|of course|absolutely)\b[,!]|here(?: is|['’]s) (?:a|the|your)\b", re.IGNORECASE)
"""How a model says that it is about to write a story."""
_TURN = re.compile(
    r"^[^\S\n]*(?:#{2,}\s*(?:human|user|assistant|instruction|input|response)\b|(?:human|user|assistant)\s*:)",
    re.IGNORECASE | re.MULTILINE,
)
"""Where a model that wrote a story went on with a chat of its own."""


Told = Annotated[str, Meta(pattern=r"\S")]


class Scored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text with the score, 1 to 5, that a teacher gave it."""

    text: Told
    score: Annotated[float, Meta(ge=1, le=5)]


class Beside(msgspec.Struct, frozen=True):
    """What a row may have beside its text: worse tellings of the whole of it, by the disturbance that each is a case
    of, and other texts on its prompt that a teacher scored: two or more, so that they say which is better.
    """

    worse: dict[str, Told] = {}
    scored: Annotated[tuple[Scored, ...], Meta(min_length=2, max_length=MOST_TEXTS)] = ()


class Story(msgspec.Struct, frozen=True):
    """A text in sentences, each after the gap before it, and the prompt it answers ("" where there is none).

    `number` is the text's among all, which its excerpts have too, `source` that of its source. An excerpt that is shown
    under another prompt than its text's keeps that as `whole_prompt`.
    """

    number: int
    prompt: str
    sentences: tuple[str, ...]
    gaps: tuple[str, ...]
    beside: Beside = Beside()
    whole_prompt: str | None = None
    source: int = 0

    @property
    def origin(self) -> str:
        """The prompt of the text itself."""
        return self.prompt if self.whole_prompt is None else self.whole_prompt


class Stories(msgspec.Struct, frozen=True):
    """All the texts, and how many of each source, by its path, were too short; and texts that are no stories."""

    texts: tuple[Story, ...]
    short: dict[str, int]
    others: tuple[str, ...] = ()


class Corpus:
    """What texts may be made worse with: other texts' sentences, and words that have stood between two words."""

    def __init__(self, texts: Sequence[Story]) -> None:
        self.texts = texts
        self._after: dict[tuple[str, ...], list[str]] = defaultdict(list)
        self._between: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.words: list[str] = []
        for text in texts:
            for sentence in text.sentences:
                tokens = _TOKEN.findall(sentence)
                self.words += [token for token in tokens if len(token) > 3 and token.isalpha() and token.islower()]
                for place in range(len(tokens) - 1):
                    self._after[(tokens[place],)].append(tokens[place + 1])
                for left, word, right in zip(tokens, tokens[1:], tokens[2:], strict=False):
                    self._after[left, word].append(right)
                    if word.isalpha():
                        self._between[left, right].append(word)
        if not self.words:  # a script without small letters
            self.words = [token for text in texts for sentence in text.sentences for token in sentence.split()]

    def sentence(self, random: Random, but: Story | None = None) -> str:
        """Some sentence of another text."""
        return random.choice(self.text(random, but).sentences)

    def text(self, random: Random, but: Story | None = None, least: int = 1) -> Story:
        """Some other text, of another prompt where there are several, of `least` sentences or more where some are."""
        enough = self.texts if least == 1 else [one for one in self.texts if len(one.sentences) >= least] or self.texts
        for _ in range(20):
            text = random.choice(enough)
            if but is None or (text.number != but.number and (text.prompt != but.origin or not but.origin)):
                return text
        assert but is not None
        others = [one for one in enough if one.number != but.number]
        return random.choice([one for one in others if one.prompt != but.origin] or others or enough)

    def babble(self, sentence: str, random: Random, memory: int) -> str:
        """A sentence that begins as this one does and goes on by chance, each word after the `memory` before it."""
        words = _TOKEN.findall(sentence)[:2]
        while len(words) < 28:
            after = self._after.get(tuple(words[-memory:])) or self._after.get(tuple(words[-1:]))
            if not after:
                break
            words.append(random.choice(after))
            if words[-1] in ".!?" and len(words) > 5:
                break
        return written(words)

    def misplaced(self, left: str, word: str, right: str, random: Random) -> str:
        """Another word that has stood between these two, or just any word."""
        others = [other for other in self._between.get((left, right), ()) if other != word]
        return random.choice(others or self.words or [word])


def stories_of(sources: Sequence[TextFile], *, mend: str = 'set text = "COLUMN" in [[sources]]') -> Stories:
    """The texts of sources; a text of fewer than three sentences is left out and counted.

    `mend` is how another column of texts is named. Raises AdjudgeError for what cannot be read, a column that is
    missing, what does not fit beside a text, and where nothing is left.
    """
    texts: list[Story] = []
    short: dict[str, int] = {}
    no_stories: list[str] = []
    for number, source in enumerate(sources):
        for prompt, text, others in _read(source, mend):
            if not source.stories:
                no_stories += [text.strip()] * bool(text.strip())
                continue
            parts, gaps = story_of(text)
            if len(parts) < FEWEST:
                short[source.path] = short.get(source.path, 0) + 1
                continue
            texts.append(Story(len(texts), prompt.strip(), parts, gaps, others, source=number))
    if not texts:
        raise AdjudgeError(f"the sources have no text of at least {FEWEST} sentences: name others")
    return Stories(tuple(texts), short, tuple(no_stories))


def story_of(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The sentences of the story in a text, which may have more before and after it, and the gap before each.

    Between the first and the last nothing is left out: what is no sentence by itself (a word, a line that does not
    end) stays with the sentence before it, or that after it where it comes first, with the text's own gap between.
    """
    found = sentences(_TURN.split(lines_of(text), maxsplit=1)[0])
    whole = [len(part.split()) > 1 and _ends(part) for part in found.parts]
    first = next((n for n, part in enumerate(found.parts) if whole[n] and not _replies(part, n)), len(whole))
    begun = first
    while begun and _exclaims(found.parts[begun - 1]) and not _replies(found.parts[begun - 1], begun - 1):
        begun -= 1
    last = max((n for n, part in enumerate(found.parts) if _ends(part) and _fits(part)), default=-1)
    parts: list[str] = []
    gaps: list[str] = []
    for place in range(begun, last + 1):
        part, gap = found.parts[place], found.gaps[place]
        if parts and (place <= first or (not whole[place] and _fits(parts[-1]))):
            parts[-1] += gap + part
        else:
            parts.append(part)
            gaps.append(gap)
    return tuple(parts), tuple(gaps)


def joined(parts: Sequence[str], gaps: Sequence[str]) -> str:
    """Sentences with the text's own gaps between them, as far as those go."""
    pieces = []
    for place, part in enumerate(parts):
        gap = gaps[place] if place < len(gaps) else " "
        pieces += [gap if gap.strip() == "" and gap else " ", part]
    return "".join(pieces[1:])


def written(words: Sequence[str]) -> str:
    """Words and marks as a sentence is written: with an end, hyphens close, and quotes that open and close."""
    text = re.sub(r"\s+([,.;:!?)\]”’%])", r"\1", " ".join(words))
    text = re.sub(r"([(\[“$])\s+", r"\1", text)
    text = re.sub(r"(?<=\w) - (?=\w)", "-", text)
    said = text.split('"')
    if len(said) % 2:  # every other piece stands in quotes
        text = "".join(f'"{piece.strip()}"' if place % 2 else piece for place, piece in enumerate(said))
    else:
        text = " ".join(piece.strip() for piece in said)
    return text if re.search(r"[.!?…][\"'”’)]*$", text) else text.rstrip(" ,;:-–—") + "."


def token_spans(sentence: str) -> list[tuple[int, int]]:
    """Where the words and marks of a sentence begin and end."""
    return [found.span() for found in _TOKEN.finditer(sentence)]


def _ends(part: str) -> bool:
    """Whether it has a sentence's end, as no heading and no line of a list or a table has."""
    return _ENDED.search(part) is not None


def _exclaims(part: str) -> bool:
    """Whether it is one word, said as a sentence: no number of a heading or a list."""
    return len(part.split()) == 1 and _ends(part) and any(map(str.isalpha, part))


def _fits(part: str) -> bool:
    return len(part.split()) <= LONGEST_SENTENCE


def _replies(part: str, place: int) -> bool:
    """Whether it is said to whoever asked for a story, at the text's beginning."""
    return place < 2 and _REPLY.match(part) is not None


def _read(source: TextFile, mend: str) -> Iterator[tuple[str, str, Beside]]:
    path = Path(source.path)
    if path.is_dir() or path.suffix.lower() in SUFFIXES:
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
        if path.is_dir() and not files:
            raise AdjudgeError(f"the source {path} has no {' or '.join(SUFFIXES)} file: name another")
        yield from (("", _text_of(file), Beside()) for file in files or [path])
        return
    rows = read_rows(path)
    if source.prompt != "prompt" and not any(source.prompt in row.columns for row in rows):
        raise AdjudgeError(f'no row of {path} has "{source.prompt}": mend prompt = "COLUMN", or leave it out')
    for row in rows:
        if source.text not in row.columns:
            raise AdjudgeError(f"{row.without(source.text, 'the column of texts')}; {mend}")
        value: Any = row.columns[source.text]
        texts = list(value.values()) if isinstance(value, dict) else [value]
        if not all(isinstance(text, str) for text in texts):
            how = "fill it, or leave the row out" if value is None else mend
            raise AdjudgeError(f'{row.place}: "{source.text}" is {"empty" if value is None else "no text"}: {how}')
        prompt = row.optional_text(source.prompt, "a source") or ""
        others = _beside_of(row)
        if others != Beside() and not (prompt.strip() and len(texts) == 1):
            raise AdjudgeError(f'{row.place}: "worse" and "scored" want one text and its prompt: give both')
        yield from ((prompt, text, others) for text in texts)


def _text_of(file: Path) -> str:
    try:
        content = file.read_bytes()
        return content.decode(coding_of(content))
    except OSError as error:
        raise AdjudgeError(f"cannot read {file} ({error.strerror}): mend that, or take it away") from error
    except UnicodeDecodeError as error:
        raise AdjudgeError(f"{file} is not UTF-8: save it as UTF-8, or take it away") from error


def _beside_of(row: Row) -> Beside:
    """What a row has beside its text; raises AdjudgeError for what does not belong there."""
    given = {name: value for name in ("worse", "scored") if (value := row.columns.get(name))}
    try:
        return msgspec.convert(given, Beside)
    except msgspec.ValidationError as error:
        raise AdjudgeError(
            f'{row.place}: {error}; "worse" must be an object such as {{"drift": "..."}}, "scored" a list of two or'
            ' more such as {"text": "...", "score": 2.5}'
        ) from error
