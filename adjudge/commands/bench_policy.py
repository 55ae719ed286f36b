"""`adjudge bench policy`: checkpoints in, what they write and how often it wins out, resumable at any point."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from adjudge.bench.csv_table import write_rows
from adjudge.bench.machine import describe_machine
from adjudge.bench.policy.bouts import Bout, Match, Referee, first_places, matches_of, repeated_places, subject_of
from adjudge.bench.policy.policies import Policy, asked_of, base_of, policy_of
from adjudge.bench.policy.report import COLUMNS, aspect_table, plot_wins, result_lines, result_rows, wins_table
from adjudge.bench.policy.texts import Opening, Text, Writer, Writing, identity_of, opening_of
from adjudge.bench.policy.wins import PolicyResult, human_result, result_of
from adjudge.commands.options.judges import of_judge
from adjudge.commands.options.models import (
    DEFAULT_JUDGE,
    Device,
    Dtype,
    MaxConcurrency,
    MaxContext,
    Retries,
    Timeout,
    TokenizerName,
    usual_model,
)
from adjudge.commands.options.runs import EarlierRun
from adjudge.commands.options.source import Source, check_fit, check_judge
from adjudge.commands.runs.output import check_apart, make_folder_of, open_output
from adjudge.commands.runs.resumable import ANOTHER_FOLDER, PUT_BACK, alone, check_answered, check_earlier, keeping
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.rewards.engines.specification import EngineSpec
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.judge import check_rows
from adjudge.rewards.judges.kinds import Options, prepare
from adjudge.rewards.records.row_files import read_rows
from adjudge.rewards.records.rows import Row, id_of
from adjudge.rewards.records.wire import json_line
from adjudge.training.progress import bar, watched
from adjudge.training.terminal import counted, open_console, say

JUDGES = ("pairwise", "pointwise", "rubric", "tree", "principle", "debate", "scalar")
"""The judges that can be asked, besides those of one's own."""
NEEDED_BY = "the evaluation of policies"


def bench_policy(
    checkpoints: Annotated[
        list[str],
        typer.Argument(
            metavar="CHECKPOINT...", help="Output folders of `adjudge train`, PEFT folders, or models as in --base."
        ),
    ],
    prompts: Annotated[
        Path,
        typer.Option(
            help="JSONL, JSON, CSV or Parquet of held-out prompts: prompt, and reference where there is a human text."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder for texts, verdicts, table and plot.")],
    base: Annotated[
        str | None,
        typer.Option(
            help="What all are compared with: a model by name or folder (default: what they were trained from)."
        ),
    ] = None,
    samples: Annotated[int, typer.Option(help="Texts of each policy to each prompt.", min=1)] = 4,
    max_tokens: Annotated[int, typer.Option(help="Tokens of a text at most.", min=1)] = 256,
    temperature: Annotated[float, typer.Option(help="How freely texts are written.", min=0.0)] = 1.0,
    top_p: Annotated[float, typer.Option(help="Share of the likeliest tokens to draw from.", min=0.0, max=1.0)] = 1.0,
    chat: Annotated[
        bool | None,
        typer.Option("--chat/--no-chat", help="Ask in the chat template (default: as in training, or yes)."),
    ] = None,
    system: Annotated[
        str | None, typer.Option(help="A system message (default: as in training, or the row's `system`, or none).")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first prompts.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Another seed draws other texts.")] = 0,
    judge: Annotated[
        str | None,
        typer.Option(
            help="pairwise compares both texts, in both orders; pointwise, rubric, tree, principle, debate and scalar"
            " the scores they give each; package.module:name, one of your own, either way (default: pointwise for"
            f" {DEFAULT_JUDGE}, else pairwise).",
            metavar="NAME",
        ),
    ] = None,
    judge_model: Annotated[
        str | None, typer.Option(help=f"As in `adjudge judge --model` (default: {DEFAULT_JUDGE}).")
    ] = None,
    judge_adapter: Annotated[Path | None, typer.Option(help="A PEFT folder: a LoRA adapter over the judge.")] = None,
    url: Annotated[
        str | None, typer.Option(help="The judge is on the server there; its key is $ADJUDGE_API_KEY.")
    ] = None,
    tokenizer: TokenizerName = None,
    max_context: MaxContext = None,
    max_concurrency: MaxConcurrency = None,
    timeout: Timeout = None,
    retries: Retries = None,
    *,
    options: Annotated[Options, of_judge("aspects", "rubric", "scheme", "principles", "mode", "language", "min_mass")],
    earlier: EarlierRun,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Have policies write to held-out prompts, and judge how often they beat their base model and people.

    Every policy writes the same number of texts to every prompt; each is compared with a text of the base model and,
    where a row has `reference`, with that. The base's own row is the control: other texts of the same model, which
    should win half. Intervals are of a bootstrap over prompts. Nothing is written or judged twice: with --resume a run
    goes on, also with further checkpoints.
    """
    model = judge_model or (usual_model(DEFAULT_JUDGE, judge_adapter) if url is None else None)
    adapter = None if judge_adapter is None else str(judge_adapter)
    # With a server --device and --dtype are those of the policies alone.
    where: dict[str, Any] = {"device": device, "dtype": dtype} if url is None else {"url": url}
    where |= {"tokenizer": tokenizer, "max_context": max_context}
    where |= {"max_concurrency": max_concurrency, "timeout": timeout, "retries": retries}
    spec = EngineSpec(model, adapter=adapter, **where)
    sampling = Sampling(max_tokens=max_tokens, temperature=temperature, top_p=top_p)
    check_judge(judge, JUDGES)
    rows = read_rows(prompts)[:limit]
    openings = [opening_of(row, NEEDED_BY) for row in rows]
    for row in rows:
        if (reference := row.optional_text("reference", NEEDED_BY)) is not None and not reference.strip():
            raise AdjudgeError(f'{row.place}: "reference" is blank: write a text, or leave it empty')
    policies = [policy_of(name) for name in dict.fromkeys(checkpoints)]
    first = base_of(policies, base)
    writing = Writing(asked_of([*policies, first], chat, system), sampling, seed)
    talk = next((row for row in rows if isinstance(row.columns["prompt"], list)), None)
    if talk is not None and not writing.asked.chat:
        raise AdjudgeError(
            f'{talk.place}: "prompt" is a conversation, and policies are asked without chat: make it a text, or give'
            " --chat"
        )
    rows = [_plain(row, opening, n) for n, (row, opening) in enumerate(zip(rows, openings, strict=True), 1)]
    judge = judge or Source(**msgspec.structs.asdict(spec)).usual_judge(options)
    open_judge = prepare(judge, options)
    check_fit(spec.model, spec.adapter, judge, options)
    check_rows(open_judge, rows, [subject_of(judge, row, n, options, "text", "text") for n, row in enumerate(rows)])
    if repeated := repeated_places(rows, openings, writing.asked, judge, options):
        say(f"{counted(len(repeated), 'row')} left out: the same as an earlier one, prompt and reference", stderr=True)
        single = [place for place in range(len(rows)) if place not in repeated]
        rows, openings = [rows[place] for place in single], [openings[place] for place in single]
    firsts = first_places(openings, writing.asked)
    everyone = [first, *(policy for policy in policies if policy.name != first.name)]
    for policy in everyone:
        identity_of(policy, device, dtype)
    spec.check()
    for written_to in (output / "texts.jsonl", output / "verdicts.jsonl"):
        check_apart(written_to, prompts)
        make_folder_of(written_to)
    journal = output / "policy.journal"
    with alone(journal, mend=ANOTHER_FOLDER) as book:
        for written_to in (output / "verdicts.jsonl", output / "texts.jsonl"):
            check_earlier(written_to, book, earlier, lost=PUT_BACK)
        served = spec.open() if spec.url is not None else None  # a server that is not there costs no earlier run
        if served is not None and spec.model is None:  # its only one, whose name is known by now
            check_fit(served.name, served.adapter, judge, options)
        if earlier == "overwrite":
            book.forget()
        with keeping(output / "texts.jsonl", lambda: f"{len(book)} texts and verdicts are kept"):
            written = _write(everyone, openings, writing, samples, book, device, dtype)
            own = {name: [text for text in texts if text.sample < samples] for name, texts in written.items()}
            _keep_texts(output / "texts.jsonl", written, rows, samples)
            matches = matches_of(rows, own, written[first.name], paired=samples, prompts=firsts)
            engine = served or spec.open()
            referee = Referee(open_judge(engine, book), judge, rows, options)
            bouts = _judge(referee, matches, output / "verdicts.jsonl", rows)
    places = set(firsts)  # each prompt counts once
    once = {name: [text for text in texts if text.place in places] for name, texts in own.items()}
    results = _results(once, bouts, first.name, seed)
    kept = _write_results(results, output, judge, engine.name)  # before anything is printed
    _show(results, first.name)
    print(*kept, sep="\n")
    check_answered(bout.abstained for bout in bouts if bout.match.missing is None)


def _plain(row: Row, opening: Opening, number: int) -> Row:
    """A row as judges and tables take it: a conversation as its text, and its system's turn in a column of its own.

    It goes by its `number` in the file also where rows before it are left out.
    """
    own = {"prompt": opening.prompt, "system": opening.system, "id": id_of(row, number)}
    return Row(row.place, {**row.columns, **own})


def _write(
    policies: Sequence[Policy],
    openings: Sequence[Opening],
    writing: Writing,
    samples: int,
    book: Journal,
    device: str,
    dtype: str,
) -> dict[str, list[Text]]:
    """What each policy writes; the first writes twice as much, the second half for all to be held against."""
    wanted = {policy.name: range(samples if place else 2 * samples) for place, policy in enumerate(policies)}
    written = {}
    with bar() as progress:
        task = progress.add_task("writing", total=len(openings) * sum(map(len, wanted.values())))
        for policy in policies:
            progress.update(task, description=f"writing: {Path(policy.name).name}")
            writer = Writer(policy, writing, book, device=device, dtype=dtype)
            written[policy.name] = writer.write(openings, wanted[policy.name], lambda: progress.advance(task))
    return written


def _keep_texts(path: Path, written: dict[str, list[Text]], rows: Sequence[Row], samples: int) -> None:
    with open_output(path) as write:
        for policy, texts in written.items():
            for text in texts:
                use = "policy" if text.sample < samples else "base"  # whom it stands for
                about = {
                    "policy": policy,
                    "as": use,
                    "id": id_of(rows[text.place], text.place + 1),
                    "prompt": rows[text.place].columns["prompt"],
                }
                write(json_line({**about, **{n: v for n, v in msgspec.to_builtins(text).items() if n != "place"}}))


def _judge(referee: Referee, matches: Sequence[Match], path: Path, rows: Sequence[Row]) -> list[Bout]:
    bouts = []
    with open_output(path) as write:
        for bout, verdict in watched("judging", referee.bouts(matches), len(matches)):
            bouts.append(bout)
            write(_line(bout, verdict, rows))
    return bouts


def _line(bout: Bout, verdict: Any, rows: Sequence[Row]) -> bytes:
    """A match and its verdict; of a judge of single texts both, without what it wrote."""
    match = bout.match
    about = {
        "policy": match.policy,
        "against": match.against,
        "id": id_of(rows[match.place], match.place + 1),
        "sample": match.sample,
    }
    said = {name: value for name, value in msgspec.to_builtins(bout).items() if name != "match"}
    detail = {} if verdict is None or isinstance(verdict, tuple) else {"verdict": msgspec.to_builtins(verdict)}
    return json_line({**about, **said, **detail})


def _results(own: dict[str, list[Text]], bouts: Sequence[Bout], base: str, seed: int) -> list[PolicyResult]:
    by_policy = {name: [bout for bout in bouts if bout.match.policy == name] for name in own}
    results = [result_of(name, own[name], by_policy[name], seed) for name in own]
    human = human_result(by_policy[base])
    return results if human is None else [human, *results]


def _write_results(results: Sequence[PolicyResult], folder: Path, judge: str, model: str) -> list[str]:
    """Write table and plot; returns what there is to say of it."""
    said: list[str] = []
    machine = describe_machine()
    write_rows(folder / "table.csv", COLUMNS, result_rows(results, judge, model, machine))
    kept = [folder / name for name in ("texts.jsonl", "verdicts.jsonl", "table.csv")]
    try:
        plot_wins(results, folder / "wins.png", f"{judge} judge, {model}\n{machine}")
        kept.append(folder / "wins.png")
    except AdjudgeError as error:
        said.append(str(error))
    return [*said, f"written: {', '.join(map(str, kept))}"]


def _show(results: Sequence[PolicyResult], base: str) -> None:
    console = open_console(150)
    console.print(wins_table(results))
    console.print(aspect_table(results))
    for line in result_lines(results, base):
        print(line)
