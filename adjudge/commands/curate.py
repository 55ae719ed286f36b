"""`adjudge curate`: texts in, preference pairs or principles out, resumable at any point."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec
import typer

from adjudge.bench.reports.labels import label_lines
from adjudge.commands.lazy import Commands
from adjudge.commands.options.files import Columns, Plot, output_beside
from adjudge.commands.options.judges import ANALYSES, WORDING, Principles, of_judge
from adjudge.commands.options.runs import RunToWrite
from adjudge.commands.options.writing import tell_texts
from adjudge.commands.runs.output import beside
from adjudge.commands.runs.resumable import check_answered
from adjudge.commands.runs.rows import columns_of, columns_suggested
from adjudge.commands.runs.stage_run import check_left, check_stages, part_beside, stage_run
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
from adjudge.training.curate.search import Plan, Round, Search, best, checked_reflection
from adjudge.training.kept_engine import KeptEngine, keeping_analyses
from adjudge.training.pictures import check_picture
from adjudge.training.stages import read_stage, write_stage
from adjudge.training.terminal import counted, say

curate = Commands(
    help="Make preference pairs and principles, with which judges are trained and told (Igniting).",
    no_args_is_help=True,
)


@curate.command("pairs")
def curate_pairs(
    texts: Annotated[Path, typer.Argument(help="JSONL, JSON, CSV or Parquet of texts, several to each prompt.")],
    output: Annotated[Path | None, output_beside("The pairs, JSONL", ".pairs.jsonl")] = None,
    *,
    agents: Annotated[
        Options,
        of_judge(
            *("examples", "without"),
            without=Annotated[
                str | None,
                typer.Option(
                    help="Agents to leave out, after commas: retrieval, positive, negative, judge or reflect."
                ),
            ],
        ),
    ],
    by: Annotated[
        Literal["rulings", "scores"],
        typer.Option(help="rulings: good against bad; scores: better against worse, whatever was ruled."),
    ] = "rulings",
    per_prompt: Annotated[int, typer.Option(help="Pairs of a prompt at most; 0: all there are.", min=0)] = 1,
    margin: Annotated[
        float,
        typer.Option(help="How far the probability of being good must be from 0.5 (scores: from the other text's)."),
    ] = 0.0,
    run_options: RunToWrite,
    options: Annotated[
        Options,
        of_judge(
            *("k", "override", *ANALYSES, "seed", *WORDING),
            k=Annotated[int | None, typer.Option(help="Good texts to find for each text (3).", min=1)],
            seed=Annotated[int | None, typer.Option(help="Another seed draws other arguments (0).")],
        ),
    ],
    columns: Columns = None,
    plot: Plot = None,
) -> None:
    """Have agents debate several texts to each prompt, and make preference pairs of what they rule.

    A row has `prompt` and `response`, optionally `id` and `label` (1 good, 0 not, as people said). Each text is judged
    as by `adjudge judge --judge debate`. A pair has `prompt`, `chosen` (ruled good) and `rejected` (ruled bad), as
    `adjudge train reward` takes them, with the ids and scores of both. --by scores makes pairs with a judge that finds
    everything good, or nothing.

    Beside the pairs stand every verdict (.verdicts.jsonl), every text that is in no pair, with the stage and reason
    (.dropped.jsonl), and the numbers (.summary.json): what each stage left, how debates ended, and, where rows have
    labels, accuracy, precision, recall and F1 of the verdicts.

    A run can be stopped at any time (Ctrl-C, kill -9) and continued with --resume; nothing is asked twice.
    """
    output = output or beside(texts, ".pairs.jsonl")
    rules, options = Rules(per_prompt, margin, by), {**agents, **options}
    with columns_suggested(columns):
        rows = read_stage(texts, needs=("prompt", "response"), columns=columns_of(columns))
    candidates, open_judge = candidates_of(rows), prepare("debate", options)
    check_picture(plot)
    others, reads = ("verdicts.jsonl", "dropped.jsonl", "summary.json"), [*files_of(options).values()]
    with stage_run("the texts", texts, output, run_options, plot=plot, others=others, reads=reads) as run:
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
    tell(stages, f"Pairs of {texts.name}", plot)
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


@curate.command("principles")
def curate_principles(
    texts: Annotated[
        Path, typer.Argument(help="JSONL, JSON, CSV or Parquet of texts that people called good (1) or not (0).")
    ],
    output: Annotated[Path | None, output_beside("The principles found, TOML", ".principles.toml")] = None,
    principles: Principles = None,
    rounds: Annotated[int, typer.Option(help="How long to search.", min=1)] = 10,
    written: Annotated[int, typer.Option(help="Bad texts that are written in a round.", min=1)] = 8,
    looked_at: Annotated[int, typer.Option(help="Labelled texts that are judged in a round.", min=1)] = 32,
    held_out: Annotated[float, typer.Option(help="Share of the prompts whose texts choose the best round.")] = 0.3,
    most: Annotated[int, typer.Option(help="Principles at most.", min=1)] = 12,
    without: Annotated[str | None, typer.Option(help="reflect: learn from bad texts alone (the ablation).")] = None,
    *,
    run_options: RunToWrite,
    analyses: Annotated[
        Options,
        of_judge(
            *("mode", "max_tokens", "temperature", "attempts"),
            max_tokens=Annotated[int | None, typer.Option(help="Tokens of what is written at most (1024).", min=1)],
            temperature=Annotated[float | None, typer.Option(help="How freely agents write (0.8).", min=0.0)],
        ),
    ],
    seed: Annotated[int, typer.Option(help="Decides what is held out, drawn and written.")] = 0,
    wording: Annotated[Options, of_judge(*WORDING)],
    columns: Columns = None,
    plot: Plot = None,
) -> None:
    """Sharpen the principles of `adjudge judge --judge principle` on texts that people have labelled.

    A row has `prompt`, `response` and `label` (1 good, 0 not), optionally `id`. In every round an agent writes texts
    that are bad and hard to tell, and the judge judges them: the principles are revised from those it misses, the
    writer's strategy from those it catches. Then labelled texts are judged, and the principles revised from what an
    agent finds out about each mistake. Those of the round that does best on texts held out are kept; start from
    --principles of your own, or from those shipped for the language.

    The output is what --principles of `adjudge judge` takes. Beside it stand each round (.rounds.jsonl: principles,
    strategy, accuracy, precision, recall, F1) and whatever came to no use, with its reason (.dropped.jsonl).

    A run can be stopped at any time (Ctrl-C, kill -9) and continued with --resume; nothing is asked twice.
    """
    plan = Plan(rounds, written, looked_at, checked_reflection(without), seed)
    output = output or beside(texts, ".principles.toml")
    with columns_suggested(columns):
        rows = read_stage(texts, needs=("prompt", "response"), columns=columns_of(columns))
        division = divide(labelled_of(rows), held_out, seed)
    language = wording.get("language", "en")
    start = default_principles(language) if principles is None else read_principles(principles)
    how = {name: value for name, value in {**analyses, **wording}.items() if name in ("mode", *WORDING)}
    prepare("principle", how)
    sampled = {name: analyses[name] for name in ("max_tokens", "temperature") if name in analyses}
    writing: dict[str, Any] = {
        "sampling": msgspec.structs.replace(WRITING, **sampled),
        "attempts": analyses.get("attempts", 3),
        "seed": seed,
    }
    if how.get("mode") == "reasoned":  # the judge writes too
        how |= writing
    if output.suffix.lower() != ".toml":
        raise AdjudgeError(f"{output} is to hold principles as TOML: name a .toml")
    check_picture(plot)
    done: list[Round] = []
    told = 0  # of what was dropped, before the round
    others, reads = ("rounds.jsonl", "dropped.jsonl"), [] if principles is None else [principles]
    with stage_run("the texts", texts, output, run_options, plot=plot, others=others, reads=reads) as run:
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
            done.append(one)
            write_stage(part_beside(output, "rounds.jsonl"), done)
            write_stage(part_beside(output, "dropped.jsonl"), search.dropped)
            write_principles(output, done)
            print(_round_line(one))
    tell_texts(agents.counts)
    if plot is not None:
        draw_rounds(done, plot, f"Principles from {texts.name}")
    chosen = best(done)
    if not any(one.held_out.judged for one in done):
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
