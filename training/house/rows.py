"""Rows to learn from: excerpts made worse by known steps, each with scores of the aspects it is asked about."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from random import Random
from string import ascii_lowercase
from typing import Any, TypeVar

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.aspects import Aspect
from adjudge.rewards.records.rows import Row
from adjudge.training.evaluator.split import held_out_of
from adjudge.training.house.disturbances import DISTURBANCES, HARD
from adjudge.training.house.hostile import HOSTILE, with_verdict
from adjudge.training.house.recipe import Excerpts
from adjudge.training.house.texts import Corpus, Story, joined
from adjudge.training.house.typesetting import typeset
from adjudge.training.prompts import fingerprint_of, plain

BEST = 4.7
"""The score of a text as its author left it; 1 is the lowest."""
SPREAD = 0.4
"""How far readers differ: the target is a score, one so much lower and one so much higher."""
BEGINNING = (0, 0, 0, 1, 2)
"""How many steps down the better of two versions is taken, drawn from these."""
FURTHER = (1, 2, 3, 4, 5)
"""How many more the worse one."""
OFTEN = (*DISTURBANCES, *HARD)
"""What a step is drawn from, besides what a recipe names."""
OTHER_PROMPT = "other prompt"
"""What a recipe and a card call a text under the prompt of another."""
OTHER_PROMPT_COSTS = {"relevance": 0.92, "coherence": 0.12, "quality": 0.35}
OTHER_PROMPT_OTHERWISE = 0.06
TOLD_WORSE = 0.6
"""How often a text that has worse tellings beside it comes with one of those."""
TOLD_STEPS = 2
"""How many steps down such a telling is."""
SCORED = "scored by a teacher"
"""What a card calls such texts among the steps down."""
ANCHORED = "judged as before"
"""And those that keep the judge's own scores."""
LONG = 9
"""Sentences of the shortest text from which excerpts with one kind of step alone are cut."""
LONG_ALONE = 0.8
"""How many of those excerpts are long ones."""
SAME_SOURCE = 0.75
"""How often a step in one of them takes what it needs from texts of the same source."""
TRIES = 9
"""How many excerpts are tried for one, for a step may find nothing to do."""
NO_STORY = "no story"
"""What a card calls a text of a source without stories, in a story's place."""
VERDICT = 0.35
"""What a verdict beside a text costs on every aspect."""


Thing = TypeVar("Thing")


class MadeRows(msgspec.Struct, frozen=True):
    """Rows for the pointwise judge and for the pairwise one."""

    single: tuple[Row, ...]
    pairs: tuple[Row, ...]
    done: dict[str, int]
    """How often each disturbance was done to texts that stand in them; to two of one excerpt at once counts once."""

    @property
    def fingerprint(self) -> str:
        """Changes with every row."""
        return fingerprint_of("rows", self.single, self.pairs)


class _Text(msgspec.Struct, frozen=True):
    """A text, the prompt it is shown under, what is left of its score by aspect, and whether its end can be judged.

    The text is `parts` after the `gaps` before them. Where they are sentences, `in_place` says of each whether it
    stands where the story's author put it, after the same one as there; it is empty where nothing is known of that.
    `steps` are those it was taken down by, each with a number of its own: a worse version has its better one's too.
    """

    prompt: str
    parts: tuple[str, ...]
    left: dict[str, float]
    ended: bool
    gaps: tuple[str, ...] = ()
    in_place: tuple[bool, ...] = ()
    steps: tuple[tuple[str, int], ...] = ()

    @property
    def text(self) -> str:
        """All of it."""
        return joined(self.parts, self.gaps)


def rows_of(
    stories: Sequence[Story],
    count: int,
    how: Excerpts,
    aspects: Sequence[Aspect],
    seed: str,
    others: Sequence[str] = (),
) -> MadeRows:
    """Rows of so many excerpts, `others` no stories; the same whenever they are asked for.

    Of each there are two versions, one worse than the other: as a pair, or as two rows that are learnt together, so
    that what they share, which says nothing, cancels out. Texts that a teacher scored are learnt together as well.
    Raises AdjudgeError for a worse telling, or a step of `often`, of an unknown kind.
    """
    for what, names in (
        ("a step of often", how.often),
        *(("a worse telling", story.beside.worse) for story in stories),
    ):
        known = (*DISTURBANCES, OTHER_PROMPT) if names is how.often else tuple(DISTURBANCES)
        if unknown := sorted(set(names) - set(known)):
            raise AdjudgeError(f'{what} goes by "{unknown[0][:40]}": choose {", ".join(known)}')
    maker = _Maker(stories, how, [aspect.name for aspect in aspects], others)
    single: list[Row] = []
    pairs: list[Row] = []
    for number in range(1, count + 1):
        random = Random(f"{seed} {number}")
        if random.random() < how.pairs:
            pairs.append(Row(f"excerpt {number}", {"id": f"{number}", **maker.pair(random)}))
        else:
            scored = maker.with_scores and random.random() < how.scored
            for place, columns in enumerate(maker.scored(random) if scored else maker.versions(random)):
                about = {"id": f"{number}{ascii_lowercase[place]}", "together": str(number)}
                single.append(Row(f"excerpt {number}", {**about, **columns}))
    return MadeRows(tuple(single), tuple(pairs), dict(maker.done))


def split(stories: Sequence[Story], share: float) -> tuple[list[Story], list[Story]]:
    """Stories to train on, and those of the held-out prompts; a story without a prompt goes by its first sentence.

    Whatever the seed: a run that goes on from another holds out the same prompts, or some of them.
    """
    return parted(stories, [plain(story.prompt or story.sentences[0]) for story in stories], share)


def parted(things: Sequence[Thing], prompts: Sequence[str], share: float) -> tuple[list[Thing], list[Thing]]:
    """Things to train on, and those of the held-out prompts among theirs, of which either side has one if it can."""
    held_out = held_out_of(set(prompts), share, 0)
    sides: tuple[list[Thing], list[Thing]] = ([], [])
    for thing, prompt in zip(things, prompts, strict=True):
        sides[prompt in held_out].append(thing)
    return sides


class _Maker:
    """Makes rows of stories."""

    def __init__(self, stories: Sequence[Story], how: Excerpts, aspects: Sequence[str], others: Sequence[str]) -> None:
        self.stories, self.how, self.aspects, self.others = stories, how, aspects, others
        self.long = [story for story in stories if len(story.sentences) > how.longest + 1]
        self.with_scores = [story for story in stories if story.beside.scored] if how.scored else []
        self.corpus = Corpus(stories)
        self.often = (*OFTEN, *(name for name in how.often if name != OTHER_PROMPT))
        self.sources: dict[int, list[Story]] = {}
        for story in stories if how.alone else ():
            if len(story.sentences) >= LONG:
                self.sources.setdefault(story.source, []).append(story)
        self.corpora = {
            source: Corpus(found)
            for source, found in self.sources.items()
            if len({one.origin or one.number for one in found}) > 1  # or a story would be made worse with itself
        }
        self.done: Counter[str] = Counter()
        self.numbers = itertools.count()

    def versions(self, random: Random) -> list[dict[str, Any]]:
        """The better and the worse version of an excerpt, set alike and asked about alike."""
        found = self._alike(self._drawn(random), random)
        asked = self._asked(found, random)
        return [
            {"prompt": text.prompt, "response": text.text, "scores": self._scores(text, asked), **_places(text)}
            for text in found
        ]

    def _drawn(self, random: Random) -> tuple[_Text, _Text]:
        """Two texts to be read one by one, the better one first."""
        if self.others and random.random() < self.how.no_story:
            return self._no_story(random)
        if self.sources and random.random() < self.how.alone:
            return self._one_kind(random)
        return self._two(random)

    def scored(self, random: Random) -> list[dict[str, Any]]:
        """Texts on one prompt that a teacher scored, set alike and asked about alike; what it scored was the whole."""
        story = random.choice(self.with_scores)
        texts = story.beside.scored
        set_alike = typeset([part for one in texts for part in (story.prompt, one.text)], random)
        asked = random.sample(self.aspects, min(self.how.asked, len(self.aspects)))
        anchored = self.how.anchored > 0 and random.random() < self.how.anchored
        self.done[ANCHORED if anchored else SCORED] += len(texts)
        more = {"anchored": True} if anchored else {}
        return [
            {"prompt": prompt, "response": response, "scores": {name: _spread(one.score) for name in asked}, **more}
            for one, prompt, response in zip(texts, set_alike[::2], set_alike[1::2], strict=True)
        ]

    def pair(self, random: Random) -> dict[str, Any]:
        """Two texts side by side, the better one first or second: of one excerpt, or of two."""
        better, worse = self._two(random)
        if random.random() < 0.3:
            worse = self._two(random)[1]
        a, b = self._alike(random.sample([better, worse], 2), random)
        asked = self._asked([a, b], random)[:1]
        prompts = {"prompt": a.prompt} if a.prompt == b.prompt else {"prompt_a": a.prompt, "prompt_b": b.prompt}
        scores = {"scores_a": self._scores(a, asked), "scores_b": self._scores(b, asked)}
        return {**prompts, "story_a": a.text, "story_b": b.text, **scores}

    def _two(self, random: Random) -> tuple[_Text, _Text]:
        """Two versions of a story, the better one first: made worse here, or told so by whoever wrote it."""
        long = bool(self.long) and random.random() < self.how.long
        story = random.choice(self.long if long else self.stories)
        worse = story.beside.worse
        if not worse or random.random() >= TOLD_WORSE:
            return self._versions(self._excerpt(story, long, random), random)
        name = random.choice(list(worse))
        left = {aspect: (1 - DISTURBANCES[name].cost(aspect)) ** TOLD_STEPS for aspect in self.aspects}
        return self._whole(story, True), self._said(f"{name}, told so", _Text(story.prompt, (worse[name],), left, True))

    def _no_story(self, random: Random) -> tuple[_Text, _Text]:
        """An excerpt as it was, and what is no story under its prompt."""
        long = bool(self.long) and random.random() < self.how.long
        story, ended = self._excerpt(random.choice(self.long if long else self.stories), long, random)
        other = _Text(story.prompt, (random.choice(self.others),), dict.fromkeys(self.aspects, 0.0), True)
        return self._whole(story, ended), self._said(NO_STORY, other)

    def _one_kind(self, random: Random) -> tuple[_Text, _Text]:
        """An excerpt made worse by one kind of step and no other; as it was, or worse already by the same.

        Sources come alike, and what a step takes of other texts is mostly of the same source, so that where a text is
        from tells nothing.
        """
        for _ in range(TRIES):
            source = random.choice(list(self.sources))
            corpus = self.corpora.get(source, self.corpus) if random.random() < SAME_SOURCE else self.corpus
            story, ended = self._excerpt(random.choice(self.sources[source]), random.random() < LONG_ALONE, random)
            kinds = (random.choice(self.how.often),)
            if kinds[0] == OTHER_PROMPT:
                whole = self._whole(story, ended)
                if (moved := self._under_another(whole, story, random, corpus)) is not None:
                    return whole, moved
                continue
            better = self._down(self._whole(story, ended), int(random.random() < 0.25), story, random, kinds, corpus)
            worse = self._down(better, random.choice((1, 2, 2)), story, random, kinds, corpus)
            if worse.parts != better.parts:
                return better, worse
        return self._two(random)

    def _excerpt(self, story: Story, long: bool, random: Random) -> tuple[Story, bool]:
        """Some sentences of it that follow each other, and whether they go to its end."""
        how = self.how
        least, most = (how.longest + 1, max(how.long_to, how.longest + 1)) if long else (how.shortest, how.longest)
        size = min(random.randint(least, most) + 1, len(story.sentences))
        from_start = random.random() < how.from_start
        start = 0 if from_start else random.randint(0, len(story.sentences) - size)
        parts, gaps = story.sentences[start : start + size], story.gaps[start : start + size]
        ended = start + size == len(story.sentences)
        if from_start and story.prompt and random.random() < self.how.prompted:
            return Story(story.number, story.prompt, parts, gaps), ended
        return Story(story.number, parts[0], parts[1:], gaps[1:], whole_prompt=story.prompt), ended

    def _versions(self, excerpt: tuple[Story, bool], random: Random) -> tuple[_Text, _Text]:
        """The excerpt some steps down, often none, and further down: by more steps, or by what a policy may try."""
        story, ended = excerpt
        better = self._down(self._whole(story, ended), random.choice(BEGINNING), story, random)
        fate = random.random()
        if fate < self.how.hostile:
            name = random.choice(list(HOSTILE))
            text = HOSTILE[name](story, random, self.corpus)
            return better, self._said(name, _Text(story.prompt, (text,), dict.fromkeys(self.aspects, 0.0), True))
        if fate < 1.5 * self.how.hostile:
            text = with_verdict(better.text, random)
            left = {name: share * (1 - VERDICT) for name, share in better.left.items()}
            told = _Text(better.prompt, (text,), left, better.ended, steps=better.steps)
            return better, self._said("verdict beside it", told)
        if fate < 2.5 * self.how.hostile:
            moved = self._under_another(better, story, random, self.corpus)
            if moved is not None:
                return better, moved
        return better, self._down(better, random.choice(FURTHER), story, random)

    def _under_another(self, text: _Text, story: Story, random: Random, corpus: Corpus) -> _Text | None:
        """A text under another story's prompt; None where that was drawn from its own."""
        prompt = corpus.text(random, story).prompt or corpus.sentence(random, story)
        if prompt in (story.origin, story.prompt):
            return None
        costs = {name: OTHER_PROMPT_COSTS.get(name, OTHER_PROMPT_OTHERWISE) for name in self.aspects}
        left = {name: share * (1 - costs[name]) for name, share in text.left.items()}
        return self._said(OTHER_PROMPT, msgspec.structs.replace(text, prompt=prompt, left=left))

    def _whole(self, story: Story, ended: bool) -> _Text:
        """An excerpt as its author left it."""
        whole = dict.fromkeys(self.aspects, 1.0)
        return _Text(story.prompt, story.sentences, whole, ended, story.gaps, (True,) * len(story.sentences))

    def _down(
        self,
        text: _Text,
        steps: int,
        story: Story,
        random: Random,
        kinds: Sequence[str] | None = None,
        corpus: Corpus | None = None,
    ) -> _Text:
        """A text of sentences so many steps further down; half of the steps are of one kind.

        A step that takes back what was done before is none.
        """
        left, ended, sentences, done = text.left, text.ended, list(text.parts), list(text.steps)
        better = (list(story.sentences), list(text.parts))
        often = kinds or self.often
        usual = random.choice(often)
        for _ in range(steps):
            name = usual if random.random() < 0.5 else random.choice(often)
            changed = DISTURBANCES[name].step(sentences, random, corpus or self.corpus, story)
            if changed is None or changed in better or _mends(sentences, changed, story):
                continue
            done.append((name, next(self.numbers)))
            sentences, ended = changed, ended or name in ("cut", "forced ending")
            left = {aspect: share * (1 - DISTURBANCES[name].cost(aspect)) for aspect, share in left.items()}
        in_place = _in_place(sentences, story.sentences)
        return _Text(text.prompt, tuple(sentences), left, ended, story.gaps, in_place, tuple(done))

    def _said(self, name: str, text: _Text) -> _Text:
        return msgspec.structs.replace(text, steps=(*text.steps, (name, next(self.numbers))))

    def _alike(self, texts: Sequence[_Text], random: Random) -> list[_Text]:
        """Texts that become rows together, their steps counted, set in one style, sentence by sentence."""
        self.done.update(name for name, _ in {step for text in texts for step in text.steps})
        pieces = iter(typeset([piece for text in texts for piece in (text.prompt, *text.parts)], random))
        return [
            msgspec.structs.replace(text, prompt=next(pieces), parts=tuple(next(pieces) for _ in text.parts))
            for text in texts
        ]

    def _asked(self, texts: Sequence[_Text], random: Random) -> list[str]:
        """Some aspects; that of an ending is of texts that have one."""
        able = [name for name in self.aspects if name != "ending" or all(text.ended for text in texts)]
        return random.sample(able, min(self.how.asked, len(able)))

    def _scores(self, text: _Text, asked: Sequence[str]) -> dict[str, list[float]]:
        return {name: _spread(1 + (BEST - 1) * text.left[name]) for name in asked}


def _in_place(sentences: Sequence[str], author: Sequence[str]) -> tuple[bool, ...]:
    """Of each sentence, whether it is the one that the author's next after the sentence before it would be."""
    expected, found = 0, []
    for sentence in sentences:
        place = next((n for n in (*range(expected, len(author)), *range(expected)) if author[n] == sentence), None)
        found.append(place == expected)
        expected = expected if place is None else place + 1
    return tuple(found)


def _places(text: _Text) -> dict[str, list[list[Any]]]:
    """The column of sentences' places: where in the text each ends, and whether it is in its own."""
    ends = (len(joined(text.parts[:count], text.gaps)) for count in range(1, len(text.parts) + 1))
    return {"places": [list(one) for one in zip(ends, text.in_place, strict=True)]} if text.in_place else {}


def _mends(before: Sequence[str], after: Sequence[str], story: Story) -> bool:
    """Whether a step took away nothing but what is not the author's, or is still there."""
    lost, new = Counter(before) - Counter(after), Counter(after) - Counter(before)
    return bool(lost) and not new and all(one in after or one not in story.sentences for one in lost)


def _spread(score: float) -> list[float]:
    """A score as different readers would give it."""
    return [round(min(5.0, max(1.0, score + by)), 3) for by in (-SPREAD, 0, SPREAD)]


def sizes(how: Excerpts) -> tuple[int, int]:
    """How many rows are trained on, and how many are held out."""
    held_out = math.ceil(how.count * how.held_out) if how.held_out else 0
    return how.count, held_out
