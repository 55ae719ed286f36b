"""`/v1/judge` and `/v1/rewards`: pairs and texts judged over HTTP, and rewards for a trainer's completions."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from time import monotonic
from typing import Any

from litestar import Router, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromQuery, JSONBody

from adjudge.engine.absent import AbsentEngine
from adjudge.engine.errors import AdjudgeError, ModelUnsupported, NotServing, QueueFull
from adjudge.engine.face import EngineFace
from adjudge.engine.http.errors import HttpError
from adjudge.engine.http.service import AnyRequest, Service
from adjudge.engine.score import Reason
from adjudge.engine.waiting import answered_by
from adjudge.rewards.http.requests import (
    OPTIONS,
    JudgeRequest,
    JudgeResponse,
    JudgingRequest,
    RewardRequest,
    RewardResponse,
    TooFew,
)
from adjudge.rewards.judges.aspects import HANNA, PERSE, Aspect, aspects_of
from adjudge.rewards.judges.judge import AskingJudge, check_subject
from adjudge.rewards.judges.kinds import KINDS, Open, misfit, named, of_pairs, prepare, usual
from adjudge.rewards.judges.options import OPTION, by_name
from adjudge.rewards.records.grouping import collected
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.wire import verdict_record
from adjudge.rewards.reward import ResponseReward, together
from adjudge.rewards.trainers.filling import filled

THREADS = 64
"""Requests that are judged at once; more wait for one of them to end."""

WORD = re.compile(r"\w+")

MOST_TEXT = 1 << 17
"""Characters of aspects as one text, each comma of which may part two."""

LOOKING = ("pairwise", "pointwise")
"""The judges that look at the server's aspects where a request names none."""


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
        self,
        service: Service,
        request: AnyRequest,
        how: JudgingRequest,
        open_judge: Open,
        subjects: list[Any],
        field: str,
    ) -> list[Any]:
        """The verdicts on subjects that came in `field`; nobody goes on judging when the client has gone."""
        with answered_by(monotonic() + service.timeout(request, how.timeout), how.priority or 0):
            run = copy_context().run

        def judged() -> list[Any]:
            with told(None):
                judge = open_judge(service.engine.face, None)
            with told(field):
                sizes = [_size(judge, subject) for subject in subjects]
                service.check_count(sum(sizes), field)  # before the words of so many questions are made
                service.check_count(_questions(judge, subjects, sizes), field)
                return list(judge.judge_iter(subjects, len(subjects)))  # `check_count` bounds them

        work = asyncio.get_running_loop().run_in_executor(self._pool, run, judged)
        return await service.unless_gone(request, work)

    def aspects(
        self, given: str | Sequence[str | Aspect] | None, preferred: Sequence[Aspect] = ()
    ) -> tuple[Aspect, ...]:
        """What a request looks at; raises a 400 for aspects that cannot be."""
        texts = [given] if isinstance(given, str) else [one for one in given or () if isinstance(one, str)]
        if (size := sum(map(len, texts))) > MOST_TEXT:
            said = f"aspects have {size} characters: at most {MOST_TEXT}, or give them as a list of aspects"
            raise HttpError(400, said, param="aspects")
        try:
            return self._aspects if given is None else aspects_of(given, preferred)
        except AdjudgeError as error:
            raise HttpError(400, str(error), param="aspects") from error


@post("/v1/judge", status_code=200, tags=["judges"])
async def judge(
    data: JSONBody[JudgeRequest],
    request: AnyRequest,
    service: NamedDependency[Service],
    threads: NamedDependency[_JudgeThreads],
) -> JudgeResponse:
    """Judge pairs or single texts, with any of the judges but ensemble and tournament."""
    service.check_model(data.model)
    field = data.field
    if not (count := len(data.pairs or data.items or ())):
        raise HttpError(400, f"{field} is empty: give at least one", param=field)
    service.check_count(count, field)
    timeout = service.timeout(request, data.timeout)
    asked = asyncio.to_thread(_asked, data, service.engine.face, threads)
    rows, open_judge, subjects = await service.unless_gone(request, asked, timeout)
    verdicts = await threads.verdicts(service, request, data, open_judge, subjects, field)
    records = await asyncio.to_thread(lambda: list(map(verdict_record, verdicts, rows)))
    return JudgeResponse(records, service.model)


def _asked(data: JudgeRequest, engine: EngineFace, threads: _JudgeThreads) -> tuple[list[Row], Open, list[Any]]:
    """The rows of a request, how its judge is opened, and what that reads of each; raises a 400 for a mistake."""
    field, rows = data.field, data.rows
    asked = data.judge or usual(engine.name, {"orders": data.orders} if data.orders else {})
    name = of_pairs(asked) if field == "pairs" else named(asked, rows)
    kind = KINDS[name]
    if kind.what != field:
        other = "pointwise" if field == "items" else "pairwise"
        said = f'the judge {asked} reads {kind.what}, not {field}: name one that does, as with "judge": "{other}"'
        raise HttpError(400, said, param=field)
    options = data.options
    if asked in LOOKING or "aspects" in options:
        options["aspects"] = threads.aspects(data.aspects, PERSE if asked == "personal" else ())
    subjects: list[Any] = []
    for number, row in enumerate(rows, 1):
        with told(row.place):
            subjects.append(kind.subject(row, number))
    with told(None):
        misfit(engine.name if engine.adapter is None else None, asked, options)
        open_judge = prepare(name, options)
    if kind.reads:  # columns of its own
        judge = open_judge(AbsentEngine(), None)
        for row, subject in zip(rows, subjects, strict=True):
            with told(row.place):
                check_subject(judge, subject, row.place)
    return rows, open_judge, subjects


@contextmanager
def told(param: str | None) -> Iterator[None]:
    """Within the block a mistake is a 400 that names `param`, or the option that it calls by its name."""
    try:
        yield
    except (HttpError, QueueFull, NotServing, ModelUnsupported):
        raise
    except AdjudgeError as error:
        words = by_name(str(error))
        named = [name.replace("-", "_") for name in OPTION.findall(str(error))]
        named += WORD.findall(words)[: 1 if param else None]
        raise HttpError(400, words, param=next((name for name in named if name in OPTIONS), param)) from error


def _size(judge: Any, subject: Any) -> int:
    """How many questions a judge asks about a subject at least: of each aspect in each order, or each criterion."""
    aspects, orders = (len(getattr(judge, name, ())) for name in ("aspects", "orders"))
    return max(1, aspects * max(1, orders), len(getattr(getattr(subject, "rubric", None), "criteria", ())))


def _questions(judge: Any, subjects: Sequence[Any], sizes: Sequence[int]) -> int:
    """How many questions a judge asks about all subjects: of one size as many each as about one of them."""
    if not isinstance(judge, AskingJudge):
        return len(subjects)
    firsts = dict(zip(reversed(sizes), reversed(subjects), strict=True))
    each = {size: len(judge.ask(subject)[0]) for size, subject in firsts.items()}
    return sum(each[size] for size in sizes)


@post("/v1/rewards", status_code=200, tags=["judges"])
async def rewards(
    data: JSONBody[RewardRequest],
    request: AnyRequest,
    service: NamedDependency[Service],
    threads: NamedDependency[_JudgeThreads],
    fill: FromQuery[float | None] = None,
    ends: FromQuery[list[str] | None] = None,
) -> RewardResponse:
    """Reward completions by how they compare with a reference."""
    if other := next((name for name in request.query_params if name not in ("fill", "ends")), None):
        raise HttpError(400, f"{other} is not read in a URL: there are fill and ends", param=other)
    if fill is not None and not math.isfinite(fill):
        raise HttpError(400, f"fill is {fill}: give a finite number", param="fill")
    service.check_model(data.model)
    timeout = service.timeout(request, data.timeout)
    asked = asyncio.to_thread(lambda: (data.read(ends or ()), threads.aspects(data.aspects)))
    pairs, aspects = await service.unless_gone(request, asked, timeout)
    field = "groups" if data.groups is not None else "query"
    if not pairs:
        empty = "groups[0].completions" if data.groups else field
        raise HttpError(400, f"{empty} is empty: give at least one", param=empty)
    options = {} if data.orders is None else {"orders": data.orders}
    compare = prepare(of_pairs(usual(service.engine.face.name, options)), {"aspects": aspects, **options})
    verdicts = await threads.verdicts(service, request, data, compare, pairs, field)
    values: list[float | None] = [None] * len(verdicts)
    abstained: list[Reason | TooFew | None] = [verdict.abstained for verdict in verdicts]
    for places in collected(data.keys):
        group = together([ResponseReward(verdicts[place].preference, verdicts[place].abstained) for place in places])
        numbers = group.settled if fill is None else filled(group, fill)
        for place, value, settled in zip(places, numbers, group.settled, strict=True):
            values[place] = value
            abstained[place] = abstained[place] or ("too_few" if settled is None else None)
    logs = {
        "abstained": [float(why is not None) for why in abstained],
        "truncated": [float(verdict.truncated) for verdict in verdicts],
    }
    return RewardResponse(values, values, abstained, logs, service.model)
