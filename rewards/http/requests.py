"""What `/v1/judge` and `/v1/rewards` take and give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from adjudge.engine.http.errors import HttpError
from adjudge.engine.score import Reason
from adjudge.engine.text.prompt import Cut
from adjudge.rewards.judges.asking import Mode
from adjudge.rewards.judges.aspects import Aspect
from adjudge.rewards.judges.comparing import Orders
from adjudge.rewards.judges.kinds import JudgeName
from adjudge.rewards.judges.rubric_scoring import Form, Scheme
from adjudge.rewards.judges.template import Layout
from adjudge.rewards.records.rows import Row, encodable
from adjudge.rewards.records.verdict import Pair
from adjudge.rewards.trainers.openrlhf_queries import response_of

TooFew = Literal["too_few"]


class JudgingRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to judge.

    `aspects` are a set's name or names after commas, or a list of names and of whole aspects; they are instructions to
    the judge and trusted. What is not judged within `timeout` seconds abstains. Lower `priority` comes first.
    """

    aspects: str | list[str | Aspect] | None = None
    model: str | None = None
    timeout: float | None = None
    priority: int | None = None


class JudgeRequest(JudgingRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`pairs` or `items` with the columns that `adjudge judge` reads for that `judge`, and its options by their names.

    A rubric comes with each item, as its column `rubric`, or is one of the published ones by name; files of the server
    cannot be named. Where no judge is, it is pointwise for the model `house`, else pairwise.
    """

    judge: JudgeName | None = None
    pairs: list[dict[str, Any]] | None = None
    items: list[dict[str, Any]] | None = None
    orders: Orders | None = None
    rubric: Literal["six", "igniting", "writing"] | None = None
    scheme: Scheme | None = None
    without: str | None = None
    weights: str | None = None
    k: int | None = None
    override: float | None = None
    form: Form | None = None
    mode: Mode | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0)] | None = None
    samples: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None
    attempts: Annotated[int, msgspec.Meta(ge=1, le=16)] | None = None
    seed: int | None = None
    language: str | None = None
    layout: Layout | None = None
    min_mass: float | None = None
    cut: Cut | None = None

    @property
    def field(self) -> str:
        """Where the subjects are; raises a 400 unless that is one place."""
        if (self.pairs is None) == (self.items is None):
            raise HttpError(400, "give either pairs or items", param="pairs")
        return "pairs" if self.items is None else "items"

    @property
    def rows(self) -> list[Row]:
        """The subjects as rows of a file; raises a 400 for one that is nested too deeply to be sent back."""
        rows: list[Row] = []
        for place, columns in enumerate(self.pairs or self.items or ()):
            name = f"{self.field}[{place}]"
            try:
                rows.append(Row(name, encodable(columns)))
            except RecursionError as error:
                raise HttpError(400, f"{name} is nested too deeply: make it flatter", param=name) from error
        return rows

    @property
    def options(self) -> dict[str, Any]:
        """The options that were given."""
        return {name: value for name in OPTIONS if (value := getattr(self, name)) is not None}


_ASIDE = ("model", "timeout", "priority", "judge", "pairs", "items")
OPTIONS = tuple(name for name in JudgeRequest.__struct_fields__ if name not in _ASIDE)
"""The fields of a JudgeRequest that are options of judges."""


class JudgeResponse(msgspec.Struct, frozen=True):
    """A verdict for every pair or item, in order, as `adjudge judge` writes it, further columns included."""

    verdicts: list[dict[str, Any]]
    model: str


class ReferencedCompletions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The completions of one prompt, and the text that each is compared with."""

    prompt: str
    completions: list[str]
    reference: str


class RewardRequest(JudgingRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Either `groups`, or what OpenRLHF posts to its `--reward.remote_url` (once `--remote_rm_url`).

    OpenRLHF sends `query`, prompt and response in one text, `prompts`, and `labels`, which must hold the reference
    texts. They are judged as they come, chat markers of the policy's template included, but for the markers that the
    URL names as `?ends=<|im_end|>` (and `&ends=` again for another), which are taken off the ends of responses.
    With `orders` both texts are shown together; without, that is so but for the house judge, which reads one at a time.
    """

    orders: Orders | None = None
    groups: list[ReferencedCompletions] | None = None
    query: list[str] | None = None
    prompts: list[str] | None = None
    labels: list[str | None] | None = None

    @property
    def keys(self) -> list[Any]:
        """What tells the completions' groups apart: their place in `groups`, or the prompt and the reference."""
        if self.groups is None:
            return list(zip(self.prompts or (), self.labels or (), strict=True))
        return [number for number, group in enumerate(self.groups) for _ in group.completions]

    def read(self, ends: Sequence[str] = ()) -> list[Pair]:
        """Each completion as story a, its reference as story b; raises a 400 that names the place of a mistake.

        `ends` are taken off the ends of responses that come with their prompts.
        """
        if (self.groups is None) == (self.query is None):
            raise HttpError(400, "give either groups, or query with prompts and labels", param="groups")
        if self.groups is not None:
            for name in ("prompts", "labels"):
                if getattr(self, name) is not None:
                    raise HttpError(400, f"{name} goes with query, not with groups: leave it out", param=name)
            return [
                Pair(completion, group.reference, group.prompt)
                for group in self.groups
                for completion in group.completions
            ]
        queries, prompts, labels = self.query or [], self.prompts or [], self.labels or []
        for name, texts in (("prompts", prompts), ("labels", labels)):
            if len(texts) != len(queries):
                raise HttpError(
                    400, f"{name} has {len(texts)} texts for {len(queries)} in query: give one each", param=name
                )
        found: list[Pair] = []
        for place, (query, prompt, label) in enumerate(zip(queries, prompts, labels, strict=True)):
            response = response_of(query, prompt, ends)
            if response is None:
                field = f"query[{place}]"
                raise HttpError(400, f"{field} does not hold prompts[{place}]: give both in one text", param=field)
            if not label:
                field = f"labels[{place}]"
                raise HttpError(400, f"{field} is empty: give the reference", param=field)
            found.append(Pair(response, label, prompt))
        return found


class RewardResponse(msgspec.Struct, frozen=True):
    """A reward for every completion, in order: the probability that it is better than its reference.

    A completion on which the judge abstained has null, never 0, and its reason in `abstained`. So has a group in which
    fewer than two have a reward, with "too_few" for the one that has; in `query` a group are those of one prompt and
    label. null stops a run of OpenRLHF, which makes tensors of the numbers: with `?fill=0.5` in its URL they have the
    mean of their group's others instead, the only reward where there is one, and 0.5 where there is none. `scores` are
    the rewards again and `extra_logs` lists of numbers, both as OpenRLHF reads them.
    """

    rewards: list[float | None]
    scores: list[float | None]
    abstained: list[Reason | TooFew | None]
    extra_logs: dict[str, list[float]]
    model: str
