"""`/v1/score`: label distributions after query and item, in SGLang's form and with adjudge's whole `Score`.

The fields `query`, `items`, `label_token_ids`, `apply_softmax`, `item_first` and `model` and the answer's `scores`,
`model`, `usage` and `object` are SGLang's (docs.sglang.ai, native API `/v1/score`), with its meaning: query and item
are joined as texts, or as token ids, before they become a prompt. Texts are data here: a special-token string in them
is plain characters, so send token ids where a prompt needs special tokens.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import msgspec
from litestar import post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from adjudge.engine.async_engine import Answers, in_order
from adjudge.engine.face import AnyLabels, AnyPrompt
from adjudge.engine.http.errors import HttpError, at_most, blame
from adjudge.engine.http.limits import MOST_LABEL_LOGPROBS
from adjudge.engine.http.service import AnyRequest, Service
from adjudge.engine.http.text_request import Usage
from adjudge.engine.score import Score
from adjudge.engine.text.labels import Labels, LabelSet, check_values

OF_AN_ID = 8
"""Characters that a token id counts as, where what is held in memory is bounded."""


class ScoreRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which labels follow each item.

    Query and items are texts or token ids alike; no query, or an empty one, goes with both. `label_token_ids` is one
    list for all items, or a list of lists, one for each; `labels` are strings instead, of any number of tokens, read in
    the context of the prompt's end, with `values` for those that are no numbers themselves. `timeout` is in seconds,
    lower `priority` comes first.
    """

    items: str | list[str | list[int]]
    query: str | list[int] | None = None
    label_token_ids: list[int | list[int]] | None = None
    labels: list[str] | None = None
    values: list[float] | None = None
    apply_softmax: bool = False
    item_first: bool = False
    model: str | None = None
    timeout: float | None = None
    priority: int | None = None
    user: str | None = None

    @property
    def listed(self) -> Sequence[str | list[int]]:
        """The items; raises a 400 for none."""
        items = [self.items] if isinstance(self.items, str) else self.items
        if not items:
            raise HttpError(400, "items is empty: give at least one", param="items")
        return items

    def check_joined(self, longest: int) -> None:
        """Raise a 413 where query and items joined are more than `longest` characters, as an id counts `OF_AN_ID`."""
        items, query = self.listed, self.query or ()
        sizes = [len(part) * (1 if isinstance(part, str) else OF_AN_ID) for part in (*items, query)]
        size = sum(sizes) + (len(items) - 1) * sizes[-1]
        at_most(size, longest, "characters, joined with query", "items", status=413)

    def prompts(self) -> list[AnyPrompt]:
        """Query and item joined, for each item; raises a 400 where one is text and the other token ids."""
        return [self._prompt(item, f"items[{place}]") for place, item in enumerate(self.listed)]

    def _prompt(self, item: str | list[int], place: str) -> AnyPrompt:
        query = self.query or type(item)()
        if isinstance(query, str) and isinstance(item, str):
            return item + query if self.item_first else query + item
        if isinstance(query, list) and isinstance(item, list):
            return item + query if self.item_first else query + item
        names = ("token ids", "text") if isinstance(item, list) else ("text", "token ids")
        raise HttpError(400, f"{place} is {names[0]} and query is {names[1]}: give both alike", param=place)

    @property
    def named(self) -> str:
        """The field that names the labels."""
        return "label_token_ids" if self.labels is None else "labels"

    def check_numbers(self, count: int) -> None:
        """Raise a 413 for labels of `count` prompts that come to more numbers than one answer may hold."""
        given = self.label_token_ids if self.labels is None else self.labels
        each = [len(part) for part in given or () if isinstance(part, list)]
        numbers = sum(each) if each else count * len(given or ())
        at_most(numbers, MOST_LABEL_LOGPROBS, f"numbers for {count} items", self.named, status=413)

    def label_sets(self, count: int) -> AnyLabels | Sequence[AnyLabels]:
        """The labels of `count` prompts; raises a 400 for none, both kinds, or a wrong number of lists."""
        if (self.labels is None) == (self.label_token_ids is None):
            raise HttpError(400, "give either label_token_ids or labels", param="label_token_ids")
        if self.label_token_ids is None:
            return Labels(tuple(self.labels or ()), self._label_values())
        if self.values is not None:
            raise HttpError(400, "values go with labels, not with label_token_ids: leave them out", param="values")
        ids = [part for part in self.label_token_ids if isinstance(part, int)]
        lists = [part for part in self.label_token_ids if isinstance(part, list)]
        if ids and lists:
            raise HttpError(400, "label_token_ids mixes ids and lists: give one or the other", param="label_token_ids")
        if not lists:
            return LabelSet.of_ids(ids)
        if len(lists) != count:
            raise HttpError(
                400, f"label_token_ids has {len(lists)} lists for {count} items: one each", param="label_token_ids"
            )
        return [LabelSet.of_ids(part) for part in lists]

    def _label_values(self) -> tuple[float, ...] | None:
        """The labels' numbers; raises a 400 for too few or many, and for one that is too large."""
        if self.values is None:
            return None
        if (count := len(self.labels or ())) != len(self.values):
            said = f"values has {len(self.values)} for {count} labels: give one each"
            raise HttpError(400, said, param="values")
        with blame("values", labels="values"):
            check_values(self.values)
        return tuple(self.values)


class ScoreResponse(msgspec.Struct, frozen=True):
    """For each item the labels' probabilities, and the whole score.

    `scores` are in the labels' order: under the whole vocabulary, or with `apply_softmax` among the labels; null for an
    item that has none, whose result says why (`reason`). In `results`, null among `logprobs` stands for minus infinity.
    """

    model: str
    scores: list[list[float] | None]
    results: list[Score]
    usage: Usage
    object: str = "scoring"


SGLANG_MODEL = "default"
"""What SGLang's clients call the model where nobody names one."""


@post("/v1/score", status_code=200, tags=["scores"])
async def score(data: JSONBody[ScoreRequest], request: AnyRequest, service: NamedDependency[Service]) -> ScoreResponse:
    """Read the distribution over labels after query and item, for every item."""
    service.check_model(None if data.model == SGLANG_MODEL else data.model)
    count, timeout = len(data.listed), service.timeout(request, data.timeout)
    service.check_count(count, "items")
    data.check_numbers(count)
    data.check_joined(service.limits.max_joined)

    async def opened() -> Answers:
        prompts, labels = await asyncio.to_thread(lambda: (data.prompts(), data.label_sets(count)))
        return await service.engine.open_score(prompts, labels, priority=data.priority or 0, timeout=timeout)

    with blame("items", labels=data.named, count=data.named if count == 1 else "items"):
        answers = await service.begun(request, opened, timeout)
        scores: list[Score] = await service.unless_gone(request, in_order(answers))
    computed = answers.prompt_tokens - answers.cached_tokens
    usage = Usage.of([(score.prompt_tokens, score.reason) for score in scores], computed)
    numbers = await asyncio.to_thread(lambda: [_numbers(score, data.apply_softmax) for score in scores])
    return ScoreResponse(service.model, numbers, scores, usage)


def _numbers(score: Score, among_labels: bool) -> list[float] | None:
    logprobs = score.logprobs if among_labels else score.full_logprobs
    return None if logprobs is None else [math.exp(value) for value in logprobs]
