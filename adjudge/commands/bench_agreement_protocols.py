"""The papers' protocols of agreement: what each judges, and its table beside the published figures."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from adjudge.bench.agreement import protocols
from adjudge.bench.agreement.dataset import judged_row
from adjudge.commands.bench_agreement_study import Found, Study, all_scores, judge_texts
from adjudge.commands.judge import Judged
from adjudge.commands.runs.resumable import ANOTHER_FOLDER
from adjudge.engine.absent import AbsentEngine
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.kinds import KINDS, prepare
from adjudge.rewards.judges.rescoring import Rescoring
from adjudge.rewards.judges.rubric_scoring import SchemeUnfit
from adjudge.rewards.run import run_of

Protocol = Literal["evolvr", "tree", "qurl"]


def evolvr(study: Study) -> Found:
    """Each text beside 0 to 16 others in both orders: the most are judged, the fewer are among them."""
    dataset = study.dataset
    sizes = [size for size in protocols.PARTNERS if size < len(dataset.rows)]
    if left_out := [size for size in protocols.PARTNERS if size not in sizes]:
        print(f"left out, for want of texts: N = {', '.join(map(str, left_out))}", file=sys.stderr)
    rows = [judged_row(row) for row in dataset.rows]
    alone = msgspec.structs.replace(study, options={**study.options, "partners": 0})
    judge_texts(alone, rows, "verdicts-0.jsonl")
    beside = {**study.options, "partners": max(sizes)}
    judged = judge_texts(msgspec.structs.replace(study, options=beside, earlier="resume"), rows)  # in the same journal
    ensembles = dict(zip(sizes, all_scores(study, judged, sizes), strict=True))
    lines = list(protocols.partners_lines(dataset, ensembles, "ensemble", study.how))
    return Found(lines, judged.verdicts, judged.cost)


def tree(study: Study) -> Found:
    """The whole tree is judged once; without nodes the old answers are scored anew. Beside it one rubric for all.

    A text that had no time for a question abstains in each.
    """
    dataset = study.dataset
    rows = [judged_row(row) for row in dataset.rows]
    judged = judge_texts(study, rows)
    kept = {name: value for name, value in study.options.items() if name in KINDS["rubric"].options}
    options = {**kept, "rubric": "writing", "language": "en"}
    beside = msgspec.structs.replace(study, judge="rubric", options=options, earlier="resume")
    rubric = judge_texts(beside, rows, "verdicts-rubric.jsonl").verdicts
    with Journal(study.journal, mend=ANOTHER_FOLDER) as book:
        card = run_of(book).card
        earlier = prepare("tree", study.options)(AbsentEngine(card), book)

        def without(nodes: tuple[str, ...], places: Sequence[int]) -> list[Any]:
            if not nodes:
                return [judged.verdicts[place] for place in places]
            options = {**study.options, "without": ",".join(nodes)}
            judge: Any = prepare("tree", options)(AbsentEngine(card), book)
            asked = Rescoring(earlier, judge, book)  # type: ignore[arg-type]
            held = [place for place in places if asked.holds(judged.subjects[place])]
            anew = dict(zip(held, asked.judge_iter(judged.subjects[place] for place in held), strict=True))
            return [anew.get(place) or _silent(judged.verdicts[place]) for place in places]

        lines = list(protocols.tree_lines(dataset, without, rubric, "tree", study.how))
    return Found(lines, [*judged.verdicts, *rubric], judged.cost)


def qurl(study: Study) -> Found:
    """The same rubrics scored in three ways, and six fixed dimensions; a scheme that does not fit says why."""
    dataset = study.dataset
    rows = [judged_row(row) for row in dataset.rows]
    plain = [{name: value for name, value in row.items() if name != "checklist"} for row in rows]
    runs = {scheme: (rows, {**study.options, "scheme": scheme}) for scheme in ("fixed", "free", "binary")}
    kept = {name: value for name, value in study.options.items() if name not in ("rubric", "scheme")}
    runs["six dimensions"] = (plain, {**kept, "rubric": "six"})
    verdicts: dict[str, Sequence[Any] | str] = {}
    latest: Judged | None = None
    for name, (texts, options) in runs.items():
        own = msgspec.structs.replace(study, options=options, earlier=study.earlier if latest is None else "resume")
        try:
            latest = judge_texts(own, texts, f"verdicts-{name.replace(' ', '-')}.jsonl")
            verdicts[name] = latest.verdicts
        except SchemeUnfit as error:
            verdicts[name] = str(error)
    assert latest is not None
    lines = list(protocols.scheme_lines(dataset, verdicts, study.how))
    every = [verdict for found in verdicts.values() if not isinstance(found, str) for verdict in found]
    return Found(lines, every, latest.cost)


PROTOCOLS: dict[Protocol, Callable[[Study], Found]] = {"evolvr": evolvr, "tree": tree, "qurl": qurl}
JUDGES: dict[Protocol, str] = {"evolvr": "ensemble", "tree": "tree", "qurl": "rubric"}
"""The judge of each."""
VARIED: dict[Protocol, str] = {"evolvr": "partners", "tree": "without", "qurl": "scheme"}
"""The option that each varies by itself."""


def _silent(verdict: Any) -> Any:
    return msgspec.structs.replace(verdict, score=None, abstained=verdict.abstained or "timeout")
