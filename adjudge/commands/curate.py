"""`adjudge curate`: texts in, preference pairs or principles out, resumable at any point."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from adjudge.bench.reports.labels import label_lines
from adjudge.commands.resumable import check_answered
from adjudge.commands.run_options import RunOptions
from adjudge.commands.stage_run import check_left, check_stages, part_beside, stage_run
from adjudge.commands.writing_options import tell_texts
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.debate import DebateJudge
from adjudge.rewards.judges.kinds import Options, files_of, prepare
from adjudge.rewards.judges.principle import PrincipleJudge, default_principles, read_principles
from adjudge.rewards.records.wire import verdict_record
from adjudge.training.attrition import Count, tell
from adjudge.training.curate.agents import FIRST_STRATEGY, WRITING, Agents
from adjudge.training.curate.label_agreement import LabelAgreement, compare_labels
from adjudge.training.curate.labelled import divide, labelled_of
from adjudge.training.curate.pairs import Rules, Rulings, candidates_of, judge_candidates, make_pairs
from adjudge.training.curate.results import draw_rounds, write_principles
from adjudge.training.curate.search import Plan, Round, Search, best
from adjudge.training.kept_engine import KeptEngine, keeping_analyses
from adjudge.training.pictures import check_picture
from adjudge.training.stages import read_stage, write_stage
from adjudge.training.terminal import counted, say


def curate_pairs_file(
    path: Path,
    output: Path,
    *,
    rules: Rules,
    options: Options,
    run_options: RunOptions,
    plot: Path | None,
) -> None:
    """Make preference pairs of the texts of `path`; mistakes are found before the model is loaded."""
    rows = read_stage(path, needs=("prompt", "response"))
    candidates, open_judge = candidates_of(rows), prepare("debate", options)
    check_picture(plot)
    others, reads = ("verdicts.jsonl", "dropped.jsonl", "summary.json"), [*files_of(options).values()]
    with stage_run("the texts", path, output, run_options, plot=plot, others=others, reads=reads) as run:
        engine = run.open()
        judge = cast(DebateJudge, open_judge(KeptEngine(engine, run.book), run.book))
        debated, verdicts = judge_candidates(judge, candidates)
        pairs, stages = make_pairs(debated.kept, rules)
        stages = [debated, *stages]
        write_stage(
            part_beside(output, "verdicts.jsonl"),
            (verdict_record(verdict, row) for verdict, row in zip(verdicts, rows, strict=True)),
        )
        write_stage(part_beside(output, "dropped.jsonl"), (drop for stage in stages for drop in stage.dropped))
        labels = [candidate.label for candidate in candidates]
        rulings = Rulings.of(verdicts)
        agreement = compare_labels(verdicts, labels)
        summary = {
            "pairs": len(pairs),
            "stages": list(map(Count.of, stages)),
            "rulings": rulings,
            "agreement": measures(agreement),
            "model": engine.name,
            "rules": rules,
            "options": {name: str(value) for name, value in options.items()},
        }
        write_stage(part_beside(output, "summary.json"), [summary])
        write_stage(output, pairs)
    tell(stages, f"Pairs of {path.name}", plot)
    print(
        f"{counted(len(debated.kept), 'ruling')}: {rulings.ratified} ratified, {rulings.overridden} overridden,"
        f" {rulings.alone} without judge or without review; {rulings.again} debated twice",
        *label_lines(verdicts, labels),
        *_one_class(labels),
        f"{counted(len(pairs), 'pair')}: {output}",
        sep="\n",
    )
    check_stages([debated])
    mend = "more --max-tokens or --attempts, or a larger --model"
    if debated.kept and rules.by == "rulings":
        mend = "--by scores pairs texts that are all ruled alike"
    elif debated.kept:
        mend = "a lower --margin" if rules.margin else "texts that differ more, or a larger --model"
    check_left(output, pairs, mend)


def curate_principles_file(
    path: Path,
    output: Path,
    *,
    plan: Plan,
    held_out: float,
    most: int,
    options: Options,
    run_options: RunOptions,
    plot: Path | None,
) -> None:
    """Search for principles on the texts of `path`; mistakes are found before the model is loaded."""
    division = divide(labelled_of(read_stage(path, needs=("prompt", "response"))), held_out, plan.seed)
    language, file = options.get("language", "en"), options.get("principles")
    start = default_principles(language) if file is None else read_principles(file)
    how = {name: options[name] for name in ("mode", "language", "layout", "min_mass", "cut") if name in options}
    prepare("principle", how)
    written = {name: options[name] for name in ("max_tokens", "temperature") if name in options}
    writing: dict[str, Any] = {
        "sampling": msgspec.structs.replace(WRITING, **written),
        "attempts": options.get("attempts", 3),
        "seed": plan.seed,
    }
    if how.get("mode") == "reasoned":  # the judge writes too
        how |= writing
    if output.suffix.lower() != ".toml":
        raise AdjudgeError(f"{output} is to hold principles as TOML: name a .toml")
    check_picture(plot)
    rounds: list[Round] = []
    told = 0  # of what was dropped, before the round
    others, reads = ("rounds.jsonl", "dropped.jsonl"), [*files_of(options).values()]
    with stage_run("the texts", path, output, run_options, plot=plot, others=others, reads=reads) as run:
        engine = run.open()
        agents = Agents(engine, run.book, language=language, most=most, **writing)
        asked = keeping_analyses(engine, run.book, how.get("mode"))
        search = Search(
            lambda principles: PrincipleJudge(asked, principles, journal=run.book, **how), agents, division, plan
        )
        for one in search.rounds(start, FIRST_STRATEGY[language]):
            if not one.held_out.judged:
                check_answered(drop.reason for drop in search.dropped)
            if not one.written and not one.looked_at:  # the journal may have known the verdicts on texts held out
                check_answered(drop.reason for drop in search.dropped[told:] if drop.stage != "held out")
            told = len(search.dropped)
            rounds.append(one)
            write_stage(part_beside(output, "rounds.jsonl"), rounds)
            write_stage(part_beside(output, "dropped.jsonl"), search.dropped)
            write_principles(output, rounds)
            print(_round_line(one))
    tell_texts(agents.counts)
    if plot is not None:
        draw_rounds(rounds, plot, f"Principles from {path.name}")
    chosen = best(rounds)
    if not any(one.held_out.judged for one in rounds):
        print("no round could be measured: the judge abstained on every text held out (docs/judges.md says what to do)")
    print(
        f"round {chosen.number} is the best on {counted(len(division.held_out), 'text')} held out, which chose it:"
        " measure it on others"
    )
    if chosen.number == 0:
        print("no round did better than the principles at the start, which stay")
    say(f"principles: {output}")


def _round_line(one: Round) -> str:
    measured, agreement = one.record, one.held_out
    numbers = ", ".join(
        f"{name} {'–' if measured[name] is None else format(measured[name], '.1%')}"
        for name in ("accuracy", "precision", "recall", "f1")
    )
    told = [numbers]
    if one.number:
        told.append(f"caught {one.caught} of {one.written} bad texts, wrong on {one.wrong} of {one.looked_at} labelled")
    if agreement.abstained:
        told.append(f"abstained on {agreement.abstained} of {agreement.judged + agreement.abstained} held out")
    if one.dropped:
        told.append(f"dropped {', '.join(f'{why} {count}' for why, count in one.dropped.items())}")
    return f"round {one.number}: {'; '.join(told)}"


def measures(agreement: LabelAgreement) -> dict[str, Any]:
    """An agreement with all that follows from its counts."""
    names = ("judged", "accuracy", "precision", "recall", "f1")
    return {**msgspec.structs.asdict(agreement), **{name: getattr(agreement, name) for name in names}}


def _one_class(labels: Sequence[bool | None]) -> list[str]:
    """A warning where people's labels are all the same."""
    known = {label for label in labels if label is not None}
    if len(known) != 1:
        return []
    [label] = known
    return [f"every label is {int(label)}: precision and recall say nothing about a judge of good and bad"]
