"""`/v1/judge` and `/v1/rewards`: pairs judged over HTTP, and rewards for a trainer's completions."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from litestar import Router, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromQuery, JSONBody

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.http.borrowed import BorrowedEngine
from adjudge.engine.http.errors import HttpError
from adjudge.engine.http.service import AnyRequest, Service
from adjudge.engine.score import Reason
from adjudge.rewards.aspects import HANNA, Aspect, checked, parse_aspects
from adjudge.rewards.pairwise import Orders, PairwiseJudge
from adjudge.rewards.verdict import Pair, PairVerdict
from adjudge.rewards.wire import Row, pair_of

THREADS = 64
"""Requests that are judged at once; more wait for one of them to end."""


class JudgingRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to judge: see `PairwiseJudge`.

    `aspects` are a set's name or names after commas, or whole aspects; they are instructions to the judge and trusted.
    What is not judged within `timeout` seconds abstains.
    """

    aspects: str | list[Aspect] | None = None
    orders: Orders = "both"
    model: str | None = None
    timeout: float | None = None


class JudgeRequest(JudgingRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Pairs as `adjudge judge` reads them: `story_a`, `story_b`, and `prompt` or `prompt_a` and `prompt_b`; `id`."""

    pairs: list[dict[str, Any]]

    def read(self) -> list[Pair]:
        """The pairs; raises a 400 that names the place of a mistake."""
        found: list[Pair] = []
        for place, columns in enumerate(self.pairs):
            row = Row(f"pairs[{place}]", columns)
            try:
                found.append(pair_of(row, place + 1))
            except AdjudgeError as error:
                raise HttpError(400, str(error), param=row.place) from error
        return found


class JudgeResponse(msgspec.Struct, frozen=True):
    """A verdict for every pair, in order."""

    verdicts: list[PairVerdict]
    model: str


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The completions of one prompt, and the text that each is compared with."""

    prompt: str
    completions: list[str]
    reference: str


class RewardRequest(JudgingRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Either `groups`, or what OpenRLHF posts to its `remote_rm_url`.

    OpenRLHF sends `query`, prompt and response in one text, `prompts`, and `labels`, which must hold the reference
    texts. They are judged as they come, chat markers of the policy's template included.
    """

    groups: list[Group] | None = None
    query: list[str] | None = None
    prompts: list[str] | None = None
    labels: list[str | None] | None = None

    def read(self) -> list[Pair]:
        """Each completion as story a, its reference as story b; raises a 400 that names the place of a mistake."""
        if (self.groups is None) == (self.query is None):
            raise HttpError(400, "give either groups, or query with prompts and labels", param="groups")
        if self.groups is not None:
            return [
                Pair(completion, group.reference, group.prompt)
                for group in self.groups
                for completion in group.completions
            ]
        queries, prompts, labels = self.query or [], self.prompts or [], self.labels or []
        for name, texts in (("prompts", prompts), ("labels", labels)):
            if len(texts) != len(queries):
                raise HttpError(400, f"{name} has {len(texts)} texts for {len(queries)} in query", param=name)
        found: list[Pair] = []
        for place, (query, prompt, label) in enumerate(zip(queries, prompts, labels, strict=True)):
            if not query.startswith(prompt):
                field = f"query[{place}]"
                raise HttpError(400, f"{field} does not begin with prompts[{place}]", param=field)
            if not label:
                field = f"labels[{place}]"
                raise HttpError(400, f"{field} is empty: a completion is compared with its reference", param=field)
            found.append(Pair(query[len(prompt) :], label, prompt))
        return found


class RewardResponse(msgspec.Struct, frozen=True):
    """A reward for every completion, in order: the probability that it is better than its reference.

    A completion on which the judge abstained has null, never 0, and its reason in `abstained`; null stops a run of
    OpenRLHF, which makes tensors of the numbers: `?fill=0.5` in its URL puts that number instead. `scores` are the
    rewards again and `extra_logs` lists of numbers, both as OpenRLHF reads them.
    """

    rewards: list[float | None]
    scores: list[float | None]
    abstained: list[Reason | None]
    extra_logs: dict[str, list[float]]
    model: str


def judging(aspects: Sequence[Aspect] = HANNA) -> Router:
    """The two routes; requests that name no aspects are judged by `aspects`."""
    threads = _JudgeThreads(tuple(aspects))
    return Router(
        "/", route_handlers=[judge, rewards], dependencies={"threads": Provide(lambda: threads, False, False)}
    )


class _JudgeThreads:
    """Threads that judge."""

    def __init__(self, aspects: tuple[Aspect, ...]) -> None:
        self._aspects = aspects
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="adjudge-judge")

    async def verdicts(
        self, service: Service, request: AnyRequest, how: JudgingRequest, pairs: list[Pair], field: str
    ) -> list[PairVerdict]:
        """The verdicts on pairs that came in `field`; nobody goes on judging when the client has gone."""
        service.check_model(how.model)
        if not pairs:
            raise HttpError(400, f"{field} is empty: give at least one", param=field)
        aspects = self._chosen(how.aspects)
        service.check_count(len(pairs) * len(aspects) * 2 * (2 if how.orders == "both" else 1), field)
        engine = BorrowedEngine(service.engine.face, service.timeout(how.timeout))
        service.ends_with(request, engine.end)
        compare = PairwiseJudge(engine, aspects, orders=how.orders).compare
        work = asyncio.get_running_loop().run_in_executor(self._pool, compare, pairs)
        return await service.unless_gone(request, work)

    def _chosen(self, aspects: str | list[Aspect] | None) -> tuple[Aspect, ...]:
        try:
            if aspects is None:
                return self._aspects
            return parse_aspects(aspects) if isinstance(aspects, str) else checked(aspects)
        except AdjudgeError as error:
            raise HttpError(400, str(error), param="aspects") from error


@post("/v1/judge", status_code=200, tags=["judges"])
async def judge(
    data: JSONBody[JudgeRequest],
    request: AnyRequest,
    service: NamedDependency[Service],
    threads: NamedDependency[_JudgeThreads],
) -> JudgeResponse:
    """Compare pairs of stories, aspect by aspect."""
    verdicts = await threads.verdicts(service, request, data, data.read(), "pairs")
    return JudgeResponse(verdicts, service.model)


@post("/v1/rewards", status_code=200, tags=["judges"])
async def rewards(
    data: JSONBody[RewardRequest],
    request: AnyRequest,
    service: NamedDependency[Service],
    threads: NamedDependency[_JudgeThreads],
    fill: FromQuery[float | None] = None,
) -> RewardResponse:
    """Reward completions by how they compare with a reference."""
    if fill is not None and not math.isfinite(fill):
        raise HttpError(400, f"fill is {fill}: give a finite number", param="fill")
    field = "groups" if data.groups is not None else "query"
    verdicts = await threads.verdicts(service, request, data, data.read(), field)
    values = [fill if verdict.preference is None else verdict.preference for verdict in verdicts]
    logs = {
        "abstained": [float(verdict.abstained is not None) for verdict in verdicts],
        "truncated": [float(verdict.truncated) for verdict in verdicts],
    }
    return RewardResponse(values, values, [verdict.abstained for verdict in verdicts], logs, service.model)
