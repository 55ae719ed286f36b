"""`adjudge bench agreement`: public files judged, and how far the judge agrees with the people who rated them."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from adjudge.bench.agreement.dataset import SAID, DataSet, drawn
from adjudge.bench.agreement.formats import load
from adjudge.bench.agreement.plots import plot_reliability, plot_scores
from adjudge.bench.agreement.resampling import FEWEST_CLUSTERS, Bootstrap
from adjudge.bench.agreement.tables import (
    Setting,
    abstention_line,
    agreement_table,
    confusion_table,
    is_small,
    reasons,
    write_tables,
)
from adjudge.bench.machine import describe_machine
from adjudge.commands.bench_agreement_protocols import JUDGES, PROTOCOLS, VARIED, Protocol
from adjudge.commands.bench_agreement_study import Found, Study, plain
from adjudge.commands.options.files import Columns
from adjudge.commands.options.judges import ANALYSES, WORDING, of_judge
from adjudge.commands.options.models import Asked
from adjudge.commands.options.runs import EarlierRun
from adjudge.commands.options.source import check_judge
from adjudge.commands.runs.output import make_folder_of
from adjudge.commands.runs.resumable import check_answered
from adjudge.commands.runs.rows import columns_of
from adjudge.engine.devices import choose_device
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.imported import importable, is_own
from adjudge.rewards.judges.kinds import KINDS, Options, kind_of, of_pairs
from adjudge.rewards.records.wire import READERS
from adjudge.training.terminal import counted, open_console

MEASURED = ("pointwise", "pairwise", "ensemble", "rubric", "tree", "principle", "debate", "personal", "scalar")
"""The judges whose agreement with people can be measured, besides those of one's own."""


def bench_agreement(
    files: Annotated[list[Path], typer.Argument(help="Files that people have rated, of one public format.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the tables, plots and verdicts.")],
    judge: Annotated[
        str | None,
        typer.Option(
            help="pointwise, pairwise, ensemble, rubric, tree, principle, debate, personal, scalar, or"
            " package.module:name for one of your own (default: pointwise; for pairs pairwise, unless the model is"
            " house; or the protocol's).",
            metavar="NAME",
        ),
    ] = None,
    protocol: Annotated[
        Protocol | None,
        typer.Option(
            help="A paper's table beside its own figures: evolvr: 0 to 16 partners and both orders; tree: each node"
            " left out, and one rubric; qurl: three ways to score a rubric."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Prompts to judge, with all their texts (default: all).", min=1)
    ] = None,
    baselines: Annotated[
        bool,
        typer.Option(
            "--baselines",
            help="Also a regression on words, fitted on other prompts, and how likely the bare model finds the texts.",
        ),
    ] = False,
    format: Annotated[
        str | None, typer.Option(help="Which public format (default: told by the columns); a wrong name lists them.")
    ] = None,
    columns: Columns = None,
    scale: Annotated[
        str | None, typer.Option(help="People's worst and best score, such as 1,10, or 6,1 (default: the format's).")
    ] = None,
    characters: Annotated[
        int | None, typer.Option(help="HoWToBench: longest text; the middle goes (default: any).", min=2)
    ] = None,
    draw_seed: Annotated[int, typer.Option(help="Another seed draws other prompts, and folds of --baselines.")] = 0,
    draws: Annotated[int, typer.Option(help="Draws of prompts that intervals come from.", min=100)] = 1000,
    *,
    source: Asked,
    options: Annotated[
        Options,
        of_judge(
            *("aspects", "orders", "partners", "rubric", "scheme", "principles", "examples", "without", "weights"),
            *("k", "form", *ANALYSES, "seed", *WORDING),
        ),
    ],
    earlier: EarlierRun,
) -> None:
    """Judge texts that people have rated, and say how far the judge agrees with them.

    Formats, told by their columns: HANNA (annotations table, or `ratings` in JSONL), OpenMEVA, StoryER, Per-MPST,
    Per-DOC, HoWToBench, WritingBench (requests and responses in two files), Auto-J, MT-Bench's human judgements,
    preference files (`prompt`, `chosen`, `rejected`), good and bad texts (`label`), and rows of `adjudge judge` with
    `scores` or `expected`; as JSONL, CSV, JSON or Parquet.

    Texts: Pearson, Spearman, Kendall's tau-b, MSE and F1 (both sides in [0, 1], F1 above 0.5) and the calibration of
    the label distribution (ECE), by aspect, over all aspects in one list, over all, and by system. Pairs: accuracy
    without and with ties (a judge's tie is where its orders differ), the share decided alike in both orders, the bias
    for the first place in log-odds, ECE. Each with a bootstrap interval over prompts, beside the length of the text
    alone. A judge of single texts decides a pair by the higher score.

    The folder gets agreement.csv, agreement.json, scores.png, reliability.png where there is a calibration, the texts,
    the verdicts and their journal; a run can be stopped and continued with --resume, and figures of other --draws cost
    nothing anew.
    """
    ends = None if scale is None else _ends(scale)
    check_judge(judge, MEASURED)
    if protocol is not None and judge not in (None, JUDGES[protocol]):
        raise AdjudgeError(f"--protocol {protocol} is for --judge {JUDGES[protocol]}: leave out --judge {judge}")
    if protocol is not None and VARIED[protocol] in options:
        raise AdjudgeError(f"--protocol {protocol} varies --{VARIED[protocol]} by itself: leave it out")
    if protocol is not None and baselines:
        raise AdjudgeError("--baselines do not stand in a paper's table: leave out --protocol, or measure them apart")
    whole = load(files, named=format, scale=ends, characters=characters, columns=columns_of(columns))
    dataset = drawn(whole, limit, draw_seed)
    if protocol is not None and dataset.what == "pairs":
        raise AdjudgeError(f"--protocol {protocol} is of single texts, and {dataset.name} has pairs: name others")
    if judge is None:
        alone = source.usual_judge(options) if dataset.what == "pairs" else "pointwise"
        judge = JUDGES[protocol] if protocol else alone
    _check_columns(judge, dataset)
    options = _fitted(options, judge, dataset)
    make_folder_of(output / "verdicts.jsonl")
    study = Study(dataset, judge, options, source, earlier, output, Bootstrap(draws=draws), baselines, draw_seed, files)
    found = (PROTOCOLS[protocol] if protocol else plain)(study)
    setting = Setting(
        data=dataset.name,
        files=tuple(file.name for file in files),
        rows=len(dataset.rows),
        prompts=len(set(dataset.clusters)),
        judge=judge,
        options={name: str(value) if isinstance(value, Path) else value for name, value in options.items()},
        model=found.cost.model,
        machine=describe_machine(None if source.url else choose_device(source.device)),
        abstained=dict(Counter(verdict.abstained for verdict in found.verdicts if verdict.abstained)),
        bootstrap=study.how,
        limit=limit,
        draw_seed=draw_seed,
        unrated=dataset.unrated,
        protocol=protocol,
        verdicts=len(found.verdicts),
        truncated=sum(verdict.truncated for verdict in found.verdicts),
    )
    written = _write(found, setting, output)  # before anything is printed, which may end with whoever reads it
    _show(found, setting)
    print(*written, sep="\n")
    check_answered(verdict.abstained for verdict in found.verdicts)


def _check_columns(judge: str, dataset: DataSet) -> None:
    """Raise AdjudgeError, naming the column, where a judge of one's own reads what rated texts have not."""
    if not is_own(judge):
        return
    importable(Path())
    for name in kind_of(judge).reads:
        if name in SAID:
            raise AdjudgeError(f'{judge} reads "{name}", which is what people said: no judge is shown that')
        if name in READERS:
            continue
        if dataset.what == "pairs":
            raise AdjudgeError(
                f'{judge} reads "{name}", and texts of pairs have no columns: measure it on single texts'
            )
        for row in dataset.rows:
            if name not in row.item.columns:
                raise AdjudgeError(
                    f'{row.place}: "{name}" is missing ({judge} reads it): give rows with prompt, response, scores and'
                    " that column"
                )


def _fitted(options: Options, judge: str, dataset: DataSet) -> Options:
    """The options, with the aspects that the data were rated on where nobody has named others."""
    if dataset.aspects and "aspects" not in options and judge in ("pointwise", "ensemble", "pairwise", "personal"):
        takes = KINDS[of_pairs(judge) if dataset.what == "pairs" else judge].options
        if "aspects" in takes:
            return {**options, "aspects": dataset.aspects}
    return options


def _show(found: Found, setting: Setting) -> None:
    console = open_console(190)
    told = [line for line in found.lines if not is_small(line)]
    console.print(agreement_table(told, title=f"{setting.data}, {setting.model}"))
    if left_out := len(found.lines) - len(told):
        print(
            f"{counted(left_out, 'line')} of groups of fewer than {FEWEST_CLUSTERS} prompts are in agreement.csv alone"
        )
    if found.cells:
        console.print(confusion_table(found.cells))
    print(abstention_line(setting))
    if setting.protocol is None:
        print(*found.cost.lines(setting.verdicts, "verdict"), sep="\n")
    print(f"[low, high]: {100 * setting.bootstrap.confidence:.0f} % of {setting.bootstrap.draws} draws of prompts")
    for line in reasons(told):
        print(line)
    print(setting.machine)


def _write(found: Found, setting: Setting, output: Path) -> list[str]:
    """Write the tables, and the plots of what there is to draw; returns what there is to say of it."""
    said: list[str] = []
    written = write_tables(output, found.lines, found.cells, setting)
    for plot in ("scores.png", "reliability.png"):
        with suppress(IsADirectoryError, PermissionError):
            (output / plot).unlink(missing_ok=True)  # an earlier run's would stay beside these figures
    title = f"{setting.data}, {setting.judge}, {setting.model}\n{setting.machine}"
    try:
        if found.scored[0] and len(found.labels) > 1:
            plot_scores(output / "scores.png", *found.scored, found.labels, title)
            written.append(output / "scores.png")
        if found.sure[0]:
            plot_reliability(output / "reliability.png", *found.sure, title)
            written.append(output / "reliability.png")
    except AdjudgeError as error:  # the figures are there without plots
        said.append(str(error))
    return [*said, f"written: {', '.join(map(str, written))}"]


def _ends(text: str) -> tuple[float, float]:
    try:
        worst, best = (float(part) for part in text.split(","))
    except ValueError as error:
        raise AdjudgeError(f'--scale is "{text}": write the worst and the best score, such as 1,5') from error
    if worst == best or not (math.isfinite(worst) and math.isfinite(best)):
        raise AdjudgeError(f'--scale is "{text}": write two different numbers, the worst score first')
    return worst, best
