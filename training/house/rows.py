"""Rows to learn from: excerpts made worse by known steps, each with scores of the aspects it is asked about."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec

from adjudge.engine.fingerprints import digest
from adjudge.rewards.aspects import Aspect
from adjudge.rewards.wire import Row
from adjudge.training.evaluator.split import place_of
from adjudge.training.house.disturbances import DISTURBANCES
from adjudge.training.house.hostile import HOSTILE, with_verdict
from adjudge.training.house.recipe import Excerpts
from adjudge.training.house.texts import Corpus, Story
from adjudge.training.house.typesetting import typeset

BEST = 4.7
"""The score of a text as its author left it; 1 is the lowest."""
SPREAD = 0.4
"""How far readers differ: the target is a score, one so much lower and one so much higher."""
STEPS = (0, 0, 1, 1, 2, 2, 3, 4)
"""How many steps down a text is taken, drawn from these."""
OTHER_PROMPT = {"relevance": 0.92, "coherence": 0.12, "quality": 0.35}
OTHER_PROMPT_OTHERWISE = 0.06
VERDICT = 0.35
"""What a verdict beside a text costs on every aspect."""


class Rows(msgspec.Struct, frozen=True):
    """Rows for the pointwise judge and for the pairwise one."""

    single: tuple[Row, ...]
    pairs: tuple[Row, ...]
    done: dict[str, int]
    """How often each disturbance was done."""

    @property
    def fingerprint(self) -> str:
        """Changes with every row."""
        return digest("rows", json.dumps([[row.columns for row in rows] for rows in (self.single, self.pairs)]))


class _Text(msgspec.Struct, frozen=True):
    """A text, the prompt it is shown under, what is left of its score by aspect, and whether its end can be judged."""

    prompt: str
    text: str
    left: dict[str, float]
    ended: bool


def rows_of(stories: Sequence[Story], count: int, how: Excerpts, aspects: Sequence[Aspect], seed: str) -> Rows:
    """So many rows of the stories; the same whenever they are asked for."""
    maker = _Maker(stories, how, [aspect.name for aspect in aspects])
    single: list[Row] = []
    pairs: list[Row] = []
    for number in range(count):
        random = Random(f"{seed} {number}")
        if random.random() < how.pairs:
            pairs.append(Row(f"row {number + 1}", {"id": f"pair {number + 1}", **maker.pair(random)}))
        else:
            single.append(Row(f"row {number + 1}", {"id": f"text {number + 1}", **maker.single(random)}))
    return Rows(tuple(single), tuple(pairs), dict(maker.done))


def split(stories: Sequence[Story], share: float, seed: int) -> tuple[list[Story], list[Story]]:
    """Stories to train on, and those of the held-out prompts; a story without a prompt goes by its first sentence."""
    sides: tuple[list[Story], list[Story]] = ([], [])
    for story in stories:
        sides[place_of(story.prompt or story.sentences[0], seed) < share].append(story)
    return sides


class _Maker:
    """Makes rows of stories."""

    def __init__(self, stories: Sequence[Story], how: Excerpts, aspects: Sequence[str]) -> None:
        self.stories, self.how, self.aspects = stories, how, aspects
        self.corpus = Corpus(stories)
        self.done: Counter[str] = Counter()

    def single(self, random: Random) -> dict[str, Any]:
        """A text under its prompt."""
        text = self._text(self._excerpt(random), random)
        prompt, response = typeset([text.prompt, text.text], random)
        asked = self._asked([text], random)
        return {"prompt": prompt, "response": response, "scores": self._scores(text, asked)}

    def pair(self, random: Random) -> dict[str, Any]:
        """Two texts: of one excerpt, or of two."""
        first = self._excerpt(random)
        second = first if random.random() < 0.6 else self._excerpt(random)
        a, b = (self._text(excerpt, random) for excerpt in (first, second))
        prompt_a, prompt_b, story_a, story_b = typeset([a.prompt, b.prompt, a.text, b.text], random)
        asked = self._asked([a, b], random)[:1]
        prompts = {"prompt": prompt_a} if prompt_a == prompt_b else {"prompt_a": prompt_a, "prompt_b": prompt_b}
        scores = {"scores_a": self._scores(a, asked), "scores_b": self._scores(b, asked)}
        return {**prompts, "story_a": story_a, "story_b": story_b, **scores}

    def _excerpt(self, random: Random) -> tuple[Story, bool]:
        """Some sentences of a story that follow each other, and whether they go to its end."""
        story, how = random.choice(self.stories), self.how
        most = how.long_to if random.random() < how.long else how.longest
        size = min(random.randint(how.shortest, most) + 1, len(story.sentences))
        from_start = random.random() < 0.4
        start = 0 if from_start else random.randint(0, len(story.sentences) - size)
        parts, gaps = story.sentences[start : start + size], story.gaps[start : start + size]
        ended = start + size == len(story.sentences)
        if from_start and story.prompt and random.random() < 0.6:
            return Story(story.prompt, parts, gaps, story.source), ended
        return Story(parts[0], parts[1:], gaps[1:], story.source), ended

    def _text(self, excerpt: tuple[Story, bool], random: Random) -> _Text:
        """The excerpt, taken some steps down, or a hostile text in its place."""
        story, ended = excerpt
        if random.random() < self.how.hostile:
            name = random.choice(list(HOSTILE))
            self.done[name] += 1
            text = HOSTILE[name](story, random, self.corpus)
            return _Text(story.prompt, text, dict.fromkeys(self.aspects, 0.0), True)
        left = dict.fromkeys(self.aspects, 1.0)
        sentences, steps = list(story.sentences), random.choice(STEPS)
        usual = random.choice(list(DISTURBANCES))
        for _ in range(steps):
            name = usual if random.random() < 0.5 else random.choice(list(DISTURBANCES))
            changed = DISTURBANCES[name].step(sentences, random, self.corpus, story)
            if changed is None:
                continue
            self.done[name] += 1
            sentences, ended = changed, ended or name in ("cut", "forced ending")
            left = {aspect: share * (1 - DISTURBANCES[name].cost(aspect)) for aspect, share in left.items()}
        text = _joined(sentences, story.gaps)
        prompt = story.prompt
        if random.random() < 0.08:
            prompt = self.corpus.text(random, story).prompt or self.corpus.sentence(random, story)
            self.done["other prompt"] += 1
            left = {name: share * (1 - OTHER_PROMPT.get(name, OTHER_PROMPT_OTHERWISE)) for name, share in left.items()}
        if random.random() < self.how.hostile / 2:
            text = with_verdict(text, random)
            self.done["verdict beside it"] += 1
            left = {name: share * (1 - VERDICT) for name, share in left.items()}
        return _Text(prompt, text, left, ended)

    def _asked(self, texts: Sequence[_Text], random: Random) -> list[str]:
        """Some aspects; that of an ending is of texts that have one."""
        able = [name for name in self.aspects if name != "ending" or all(text.ended for text in texts)]
        return random.sample(able, min(self.how.asked, len(able)))

    def _scores(self, text: _Text, asked: Sequence[str]) -> dict[str, list[float]]:
        scores = {}
        for name in asked:
            score = 1 + (BEST - 1) * text.left[name]
            scores[name] = [round(min(5.0, max(1.0, score + by)), 3) for by in (-SPREAD, 0, SPREAD)]
        return scores


def _joined(sentences: Sequence[str], gaps: Sequence[str]) -> str:
    """Sentences with the text's own gaps between them, as far as those go."""
    pieces = []
    for place, sentence in enumerate(sentences):
        gap = gaps[place] if place < len(gaps) else " "
        pieces += [gap if gap.strip() == "" and gap else " ", sentence]
    return "".join(pieces[1:])


def sizes(how: Excerpts) -> tuple[int, int]:
    """How many rows are trained on, and how many are held out."""
    held_out = math.ceil(how.count * how.held_out) if how.held_out else 0
    return how.count, held_out
