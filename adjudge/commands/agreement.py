"""`adjudge bench agreement`: public files judged, and how far the judge agrees with the people who rated them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

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
from adjudge.commands.agreement_protocols import JUDGES, PROTOCOLS, VARIED, Protocol
from adjudge.commands.agreement_study import Found, Study, plain
from adjudge.commands.output import make_folder_of
from adjudge.commands.resumable import check_answered
from adjudge.commands.rows import columns_of
from adjudge.commands.run_options import Earlier
from adjudge.commands.source import Source, check_judge
from adjudge.engine.devices import choose_device
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.imported import importable, is_own
from adjudge.rewards.judges.kinds import KINDS, Options, kind_of, of_pairs
from adjudge.rewards.records.wire import READERS
from adjudge.training.terminal import counted, open_console

MEASURED = ("pointwise", "pairwise", "ensemble", "rubric", "tree", "principle", "debate", "personal", "scalar")
"""The judges whose agreement with people can be measured, besides those of one's own."""


def measure_agreement(
    files: Sequence[Path],
    output: Path,
    *,
    judge: str | None,
    options: Options,
    source: Source,
    earlier: Earlier,
    format: str | None,
    scale: tuple[float, float] | None,
    characters: int | None,
    columns: str | None,
    limit: int | None,
    draw_seed: int,
    draws: int,
    baselines: bool,
    protocol: Protocol | None,
) -> None:
    """Judge a sample of the files, print the tables, and write them into the folder `output`."""
    check_judge(judge, MEASURED)
    if protocol is not None and judge not in (None, JUDGES[protocol]):
        raise AdjudgeError(f"--protocol {protocol} is for --judge {JUDGES[protocol]}: leave out --judge {judge}")
    if protocol is not None and VARIED[protocol] in options:
        raise AdjudgeError(f"--protocol {protocol} varies --{VARIED[protocol]} by itself: leave it out")
    if protocol is not None and baselines:
        raise AdjudgeError("--baselines do not stand in a paper's table: leave out --protocol, or measure them apart")
    whole = load(files, named=format, scale=scale, characters=characters, columns=columns_of(columns))
    dataset = drawn(whole, limit, draw_seed)
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
        model=found.model,
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
