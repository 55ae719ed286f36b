"""`/v1/judge` and `/v1/rewards`: pairs and texts judged over HTTP, and rewards for a trainer's completions."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Annotated, Any, Literal

import msgspec
from litestar import Router, post
from litestar.di import NamedDependency, Provide
from litestar.params import FromQuery, JSONBody

from adjudge.engine.errors import AdjudgeError, NotServing, QueueFull
from adjudge.engine.http.borrowed import BorrowedEngine
from adjudge.engine.http.errors import HttpError
from adjudge.engine.http.service import AnyRequest, Service
from adjudge.engine.prompt import Cut
from adjudge.engine.score import Reason
from adjudge.rewards.asking import Mode
from adjudge.rewards.aspects import HANNA, PERSE, Aspect, aspects_of
from adjudge.rewards.comparing import Orders
from adjudge.rewards.judge import AskingJudge
from adjudge.rewards.kinds import KINDS, JudgeName, Kind, Open, misfit, named, of_pairs, prepare, takers, usual
from adjudge.rewards.queries import response_of
from adjudge.rewards.reward import ResponseReward, together
from adjudge.rewards.rows import Row, encodable
from adjudge.rewards.template import Layout
from adjudge.rewards.trainers.filling import filled
from adjudge.rewards.trainers.samples import collected
from adjudge.rewards.verdict import Pair
from adjudge.rewards.wire import verdict_record

TooFew = Literal["too_few"]

THREADS = 64
"""Requests that are judged at once; more wait for one of them to end."""


class JudgingRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to judge.

    `aspects` are a set's name or names after commas, or whole aspects; they are instructions to the judge and trusted.
    What is not judged within `timeout` seconds abstains. Lower `priority` comes first.
    """

    aspects: str | list[Aspect] | None = None
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
    scheme: Literal["fixed", "free", "binary"] | None = None
    without: str | None = None
    weights: str | None = None
    k: int | None = None
    override: float | None = None
    form: Literal["fixed", "parity"] | None = None
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
                raise HttpError(400, f"{name} is nested too deeply", param=name) from error
        return rows

    def options(self, kind: Kind) -> dict[str, Any]:
        """The options that were given; raises a 400 for one that is not that judge's."""
        given = {name: value for name in OPTIONS if (value := getattr(self, name)) is not None}
        if wrong := next((option for option in given if option not in kind.options), None):
            raise HttpError(400, f"{wrong} is for the judges {takers(wrong)}: leave it out", param=wrong)
        return given


OPTIONS = (
    *("aspects", "orders", "rubric", "scheme", "without", "weights", "k", "override", "form", "mode"),
    *("max_tokens", "temperature", "samples", "attempts", "seed", "language", "layout", "min_mass", "cut"),
)
"""The fields of a JudgeRequest that are options of judges."""

OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)")
"""An option as the command line has it, in the errors of judges."""

WORD = re.compile(r"\w+")

HERE = {"add examples": "leave it out", "give your own": "name another"}
"""Mends for which a request has no place, and what it can do."""

MOST_TEXT = 1 << 17
"""Characters of aspects as one text, each comma of which may part two."""

LOOKING = ("pairwise", "pointwise")
"""The judges that look at the server's aspects where a request names none."""


class JudgeResponse(msgspec.Struct, frozen=True):
    """A verdict for every pair or item, in order, as `adjudge judge` writes it, further columns included."""

    verdicts: list[dict[str, Any]]
    model: str


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The completions of one prompt, and the text that each is compared with."""

    prompt: str
    completions: list[str]
    reference: str


class RewardRequest(JudgingRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Either `groups`, or what OpenRLHF posts to its `remote_rm_url`.

    OpenRLHF sends `query`, prompt and response in one text, `prompts`, and `labels`, which must hold the reference
    texts. They are judged as they come, chat markers of the policy's template included, but for the markers that the
    URL names as `?ends=<|im_end|>` (and `&ends=` again for another), which are taken off the ends of responses.
    With `orders` both texts are shown together; without, that is so but for the house judge, which reads one at a time.
    """

    orders: Orders | None = None
    groups: list[Group] | None = None
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
            response = response_of(query, prompt, ends)
            if response is None:
                field = f"query[{place}]"
                raise HttpError(400, f"{field} does not hold prompts[{place}]", param=field)
            if not label:
                field = f"labels[{place}]"
                raise HttpError(400, f"{field} is empty: a completion is compared with its reference", param=field)
            found.append(Pair(response, label, prompt))
        return found


class RewardResponse(msgspec.Struct, frozen=True):
    """A reward for every completion, in order: the probability that it is better than its reference.

    A completion on which the judge abstained has null, never 0, and its reason in `abstained`. So has a group in which
    fewer than two have a reward, with "too_few" for the one that has; in `query` a group are those of one prompt and
    label. null stops a run of OpenRLHF, which makes tensors of the numbers: with `?fill=0.5` in its URL they have the
    mean of their group's others instead, and 0.5 where fewer than two have a reward. `scores` are the rewards again and
    `extra_logs` lists of numbers, both as OpenRLHF reads them.
    """

    rewards: list[float | None]
    scores: list[float | None]
    abstained: list[Reason | TooFew | None]
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
        self,
        service: Service,
        request: AnyRequest,
        how: JudgingRequest,
        open_judge: Open,
        subjects: list[Any],
        field: str,
    ) -> list[Any]:
        """The verdicts on subjects that came in `field`; nobody goes on judging when the client has gone."""
        engine = BorrowedEngine(service.engine.face, service.timeout(how.timeout), how.priority or 0)
        service.ends_with(request, engine.end)

        def judged() -> list[Any]:
            with told(None):
                judge = open_judge(engine, None)
            with told(field):
                sizes = [_size(judge, subject) for subject in subjects]
                service.check_count(sum(sizes), field)  # before the words of so many questions are made
                service.check_count(_questions(judge, subjects, sizes), field)
                return list(judge.judge(subjects))

        work = asyncio.get_running_loop().run_in_executor(self._pool, copy_context().run, judged)
        return await service.unless_gone(request, work)

    def aspects(self, given: str | Sequence[Aspect] | None, preferred: Sequence[Aspect] = ()) -> tuple[Aspect, ...]:
        """What a request looks at; raises a 400 for aspects that cannot be."""
        if isinstance(given, str) and len(given) > MOST_TEXT:
            said = f"aspects have {len(given)} characters: at most {MOST_TEXT}, or give them as a list of aspects"
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
    """Judge pairs or single texts, with any of the judges."""
    service.check_model(data.model)
    field = data.field
    if not (count := len(data.pairs or data.items or ())):
        raise HttpError(400, f"{field} is empty: give at least one", param=field)
    service.check_count(count, field)
    timeout, name = service.timeout(data.timeout), service.engine.face.name
    asked = asyncio.to_thread(_asked, data, name, threads)
    rows, open_judge, subjects = await service.unless_gone(request, asked, timeout)
    verdicts = await threads.verdicts(service, request, data, open_judge, subjects, field)
    records = await asyncio.to_thread(lambda: list(map(verdict_record, verdicts, rows)))
    return JudgeResponse(records, service.model)


def _asked(data: JudgeRequest, model: str, threads: _JudgeThreads) -> tuple[list[Row], Open, list[Any]]:
    """The rows of a request, how its judge is opened, and what that reads of each; raises a 400 for a mistake."""
    field, rows = data.field, data.rows
    asked = data.judge or usual(model, {"orders": data.orders} if data.orders else {})
    name = named(asked, rows)
    kind = KINDS[name]
    if kind.what != field:
        raise HttpError(400, f"the judge {asked} reads {kind.what}, not {field}", param=field)
    options = data.options(kind)
    if asked in LOOKING or "aspects" in options:
        options["aspects"] = threads.aspects(data.aspects, PERSE if asked == "personal" else ())
    subjects: list[Any] = []
    for number, row in enumerate(rows, 1):
        with told(row.place):
            subjects.append(kind.subject(row, number, options))
    with told(None):
        misfit(model, asked, options)
        return rows, prepare(name, options), subjects


@contextmanager
def told(param: str | None) -> Iterator[None]:
    """Within the block a mistake is a 400 that names `param`, or the option that it calls by its name."""
    try:
        yield
    except (HttpError, QueueFull, NotServing):
        raise
    except AdjudgeError as error:
        words = OPTION.sub(lambda found: found[1].replace("-", "_"), str(error))
        for mend, here in HERE.items():
            words = words.replace(mend, here)
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
    timeout = service.timeout(data.timeout)
    asked = asyncio.to_thread(lambda: (data.read(ends or ()), threads.aspects(data.aspects)))
    pairs, aspects = await service.unless_gone(request, asked, timeout)
    field = "groups" if data.groups is not None else "query"
    if not pairs:
        raise HttpError(400, f"{field} is empty: give at least one", param=field)
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
