"""What goes into a judge and what comes out: the wire format of pairs, items and their verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal, TypeVar, cast

import msgspec

from adjudge.engine.checking import shown
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import Reason
from adjudge.rewards.records.rubric import Rubric, check_rubric, rubric_of

Given = TypeVar("Given")


class Review(msgspec.Struct, frozen=True):
    """What a reviewer once wrote about a plot (None where that is not known), and the score they gave it."""

    plot: str
    review: str | None
    score: float


class Comparison(msgspec.Struct, frozen=True):
    """Which of two plots a reviewer once preferred, on one aspect; raises AdjudgeError for a third."""

    a: str
    b: str
    preferred: Literal["a", "b"]
    aspect: str = ""

    def __post_init__(self) -> None:
        if self.preferred not in ("a", "b"):
            raise AdjudgeError(f'preferred is {shown(self.preferred)}: say which plot it was, "a" or "b"')


class Pair(msgspec.Struct, frozen=True):
    """Two stories to compare, with the prompt both answer, or one prompt each.

    `reviews` are earlier choices of the reader whose taste decides, for judges that ask for one's. Raises AdjudgeError
    for a text that is no string, and a prompt of one story alone.
    """

    a: str
    b: str
    prompt: str = ""
    prompt_a: str | None = None
    prompt_b: str | None = None
    id: str = ""
    reviews: tuple[Comparison, ...] = ()

    def __post_init__(self) -> None:
        place = f'pair "{self.id}"'
        check_texts(place, {"a": self.a, "b": self.b, "prompt": self.prompt})
        check_texts(place, {"prompt_a": self.prompt_a, "prompt_b": self.prompt_b}, absent=True)
        _check_reviews(place, self.reviews, Comparison)
        if not self.prompt and (self.prompt_a is None) != (self.prompt_b is None):
            other = "prompt_a" if self.prompt_a is None else "prompt_b"
            raise AdjudgeError(f"{place}: {other} is missing: give each story its prompt, or one for both")

    @property
    def prompts(self) -> tuple[str, str]:
        """The prompt of each story."""
        return (
            self.prompt if self.prompt_a is None else self.prompt_a,
            self.prompt if self.prompt_b is None else self.prompt_b,
        )


class AspectVerdict(msgspec.Struct, frozen=True):
    """One aspect of a pair.

    `score_a` and `score_b` are expected scores averaged over the orders; `preference` is the probability that a is
    better; `bias` the log-odds for whichever story is shown first (None with one order); `mass` the least label mass
    of its questions; the distributions are over the scale's labels, averaged over the orders. `analyses` are the texts
    that the scores were read from, order by order (None where nothing was written). Where each question had several,
    `spread_a` and `spread_b` are the standard deviations of their scores, as root mean squares over the orders.
    `weight` is how the aspect counts in the pair's preference. With `abstained` the values are None.
    """

    score_a: float | None
    score_b: float | None
    preference: float | None
    bias: float | None
    mass: float | None
    distribution_a: tuple[float, ...] | None = None
    distribution_b: tuple[float, ...] | None = None
    abstained: Reason | None = None
    analyses: tuple[str, ...] | None = None
    spread_a: float | msgspec.UnsetType = msgspec.UNSET
    spread_b: float | msgspec.UnsetType = msgspec.UNSET
    weight: float | msgspec.UnsetType = msgspec.UNSET


class PairVerdict(msgspec.Struct, frozen=True):
    """What a judge concludes about a pair; `preference` is the probability that a is better, None when it abstained.

    `truncated` says that a text was shortened to fit; `model` names the judge, and `adapter` is the fingerprint of what
    lies over its weights, where something does; `key` is the journal's.
    """

    id: str
    preference: float | None
    aspects: dict[str, AspectVerdict]
    abstained: Reason | None
    truncated: bool
    model: str
    key: str
    adapter: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def bias(self) -> float | None:
        """Mean position bias of the aspects, in log-odds for the first place; they count as in the preference."""
        counted = [one for one in self.aspects.values() if one.bias is not None and one.weight != 0]
        weights = [one.weight or 1.0 for one in counted]  # those of a judge of one's own may have none
        return fmean([one.bias or 0.0 for one in counted], weights) if counted else None

    @property
    def mass(self) -> float | None:
        """The least label mass of any question."""
        return least_mass(self.aspects.values())


WritingTask = Literal["completion", "guide", "open"]
"""What a text was written from: a text with gaps, an outline, or an instruction alone (Tree of Writing)."""


class Item(msgspec.Struct, frozen=True):
    """A text to judge, and the prompt it answers.

    `reference` is another answer to the prompt, `reviews` what the reader whose taste decides wrote before, and
    `rubric` what this very text is to be graded by (a dict as files have it becomes one: see `rubric_of`), for judges
    that use them; so are the text's `genre`, in words of any language, and `task`. `columns` are further ones of its
    row, by their names, for judges of one's own. Raises AdjudgeError for a text that is no string, and what is no
    rubric.
    """

    prompt: str
    response: str
    id: str = ""
    reference: str | None = None
    genre: str | None = None
    task: WritingTask | None = None
    reviews: tuple[Review, ...] = ()
    rubric: Rubric | None = None
    columns: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        place = f'item "{self.id}"'
        check_texts(place, {"prompt": self.prompt, "response": self.response})
        check_texts(place, {"reference": self.reference, "genre": self.genre}, absent=True)
        _check_reviews(place, self.reviews, Review)
        if isinstance(rubric := cast("Any", self.rubric), dict):
            msgspec.structs.force_setattr(self, "rubric", rubric_of(rubric, f"{place}: rubric"))
        check_rubric(self.rubric, f"{place}: rubric")
        if not isinstance(self.columns, Mapping) or not all(isinstance(name, str) for name in self.columns):
            raise AdjudgeError(f"{place}: columns is {shown(self.columns)}: give them by their names")

    def __hash__(self) -> int:
        """That of all but what columns hold, which may have none."""
        own = (self.prompt, self.response, self.id, self.reference, self.genre, self.task, self.reviews, self.rubric)
        return hash((*own, frozenset(self.columns)))


class Example(msgspec.Struct, frozen=True):
    """A good text, and the prompt it answers: what judges may measure others by."""

    prompt: str
    response: str


class Part(msgspec.Struct, frozen=True):
    """One part of an item's verdict: an aspect, a criterion, a leaf.

    `score` is the expected value of `distribution`, which is over the labels asked for; `mass` their probability under
    the whole vocabulary; `weight` how the part counts in the verdict's score. Where the score is the mean of several,
    `spread` is their standard deviation. With `abstained` the score is None.
    """

    score: float | None
    weight: float = 1.0
    distribution: tuple[float, ...] | None = None
    mass: float | None = None
    abstained: Reason | None = None
    spread: float | msgspec.UnsetType = msgspec.UNSET


class Verdict(msgspec.Struct, frozen=True):
    """What a judge concludes about one text; `score` is None when it abstained.

    `breakdown` has its parts by name, `analysis` what the judge wrote about each (None where it wrote nothing).
    `truncated`, `model`, `adapter` and `key` are those of a `PairVerdict`.
    """

    id: str
    score: float | None
    breakdown: dict[str, Part]
    abstained: Reason | None
    truncated: bool
    model: str
    key: str
    analysis: dict[str, tuple[str, ...]] | None = None
    adapter: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def mass(self) -> float | None:
        """The least label mass of any part."""
        return least_mass(self.breakdown.values())


class RubricVerdict(Verdict, frozen=True):
    """What a rubric says about a text; `score` is in [0, 1], the parts' scores are in their own points.

    `mean` is the weighted mean of the parts on their scale, vetoes aside (None where they have none in common, or are
    met or not); `acceptable` whether it reaches the rubric's threshold and nothing vetoes (None without a threshold or
    mean); `vetoed` names the criteria that more probably veto than not.
    """

    mean: float | None = None
    acceptable: bool | None = None
    vetoed: tuple[str, ...] = ()


def least_mass(weighed: Iterable[Any]) -> float | None:
    """The least label mass of scores, parts or verdicts, None where none of them has any."""
    return min((one.mass for one in weighed if one.mass is not None), default=None)


def abstention(parts: Mapping[str, Part]) -> Reason | None:
    """Why a verdict that rests on these parts has no score: the reason of the first that abstained and counts."""
    return next((part.abstained for part in parts.values() if part.weight and part.abstained), None)


def weighted_mean(parts: Mapping[str, Part]) -> float | None:
    """The mean of the parts' scores by their weights, of those that count; None where one of them has abstained."""
    if abstention(parts):
        return None
    counted = [part for part in parts.values() if part.weight]
    return sum(part.weight * (part.score or 0.0) for part in counted) / sum(part.weight for part in counted)


def check_texts(place: str, texts: Mapping[str, object], *, absent: bool = False) -> None:
    """Raise AdjudgeError for what is no string: a judge would be shown something else than its author means."""
    for name, value in texts.items():
        if not (isinstance(value, str) or (absent and value is None)):
            raise AdjudgeError(f"{place}: {name} is {shown(value)}, not a string: give its text")


def each_of(given: Iterable[Given], kind: type[Given]) -> Iterator[Given]:
    """What is given, one by one; raises AdjudgeError for what is no list, or holds anything but that kind."""
    name = kind.__name__
    try:
        each = iter(given)
    except TypeError as error:
        raise AdjudgeError(f"{shown(given)} is no list of {name}s: put it in brackets") from error
    for one in each:
        if not isinstance(one, kind):
            raise AdjudgeError(f"{shown(one)} is no {name}: give {name}(…) objects, in a list")
        yield one


def _check_reviews(place: str, reviews: Sequence[object], kind: type) -> None:
    """Raise AdjudgeError for an earlier review of another kind than the judges of such a subject read."""
    for review in reviews:
        if not isinstance(review, kind):
            raise AdjudgeError(f"{place}: {shown(review)} is among its reviews: give {kind.__name__}(…) objects")
