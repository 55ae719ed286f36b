"""`adjudge judge`: a file of pairs or of single texts, judged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from adjudge.cli.groups import Analyses, RunToJudge, Wording, with_groups
from adjudge.cli.options import (
    Columns,
    Examples,
    Form,
    HowMany,
    JudgeAspects,
    JudgeLimit,
    JudgeOrders,
    Override,
    Partners,
    Principles,
    Report,
    Rubric,
    Scheme,
    TreeWeights,
    Without,
    beside,
    judge_options,
    output_beside,
)


@with_groups
def judge_command(
    texts: Annotated[
        Path,
        typer.Argument(help="JSONL, JSON, CSV or Parquet of pairs or single texts; or a journal, to judge it again."),
    ],
    output: Annotated[Path | None, output_beside("Verdicts, JSONL in input order", ".verdicts.jsonl")] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            help="pairwise, pointwise, ensemble, rubric, tree, principle, debate, personal, scalar or tournament, as"
            " above, or package.module:name for a judge of your own (default: pointwise for house, pairwise for other"
            " models and where --orders is given).",
            metavar="JUDGE",
        ),
    ] = None,
    *,
    run_options: RunToJudge,
    aspects: JudgeAspects = None,
    orders: JudgeOrders = None,
    rubric: Rubric = None,
    scheme: Scheme = None,
    principles: Principles = None,
    examples: Examples = None,
    without: Without = None,
    weights: TreeWeights = None,
    k: HowMany = None,
    override: Override = None,
    partners: Partners = None,
    form: Form = None,
    analyses: Analyses,
    seed: Annotated[int | None, typer.Option(help="Another seed draws other analyses, and other partners (0).")] = None,
    wording: Wording,
    columns: Columns = None,
    limit: JudgeLimit = None,
    report: Report = None,
) -> None:
    """Judge a file of texts; each judge's columns are listed below.

    **pairwise** compares two stories aspect by aspect, shown together. A row has `story_a`, `story_b` and `prompt` (or
    `prompt_a` and `prompt_b`), optionally `id`; further columns pass through, and `expected` (a, b or tie) is compared
    with the verdicts. Each line of the output has `preference`, the probability that story_a is better (null when the
    judge abstains, with the reason in `abstained`), and per-aspect scores. **pointwise** scores one text by aspects: a
    row has `prompt` and `response`, a line `score` and `breakdown`; rows of pairs, whose stories it reads one at a
    time, and their lines are as for pairwise. **ensemble** reads and writes what pointwise does of single texts, but
    compares each with --partners others of the file in both orders, as pairwise does, and takes the mean of its scores.

    **rubric** grades one text by criteria. A row has `prompt` and `response`, optionally its own `rubric` (an object;
    in CSV its JSON text) or `checklist` (WritingBench's five levels); other rows take --rubric. A line has `score` in
    [0, 1], `breakdown` (each criterion in its own points), `mean` on the criteria's scale, `acceptable` where the
    rubric has a threshold, and `vetoed`.

    **tree** judges a writing leaf by leaf, beside a reference that stands at 6 if there is one: a row has `prompt` (the
    instruction) and `response`, optionally `reference`, `task` (completion, guide or open; a completion has no format)
    and `genre`. Each line has `score` and `breakdown`, every node and leaf with its weight. --form parity is the
    paper's arithmetic, --without leaves out nodes or leaves.

    **principle** judges whether a text is good by a list of principles: `prompt` and `response` in, `score`, the
    probability of good, out. **debate** has agents argue for and against it, one rule, and one review the ruling: the
    same columns; `breakdown` has the rulings, of which the one of weight 1 decided, `analysis` what each agent said;
    the options of writing are its agents' in either mode. A column `label` (1 good, 0 not) is compared with the
    verdicts of both.

    **personal** foresees what one reader would say, by `reviews` of that reader. A row with `prompt` (may be empty),
    `response` and `reviews` ([{plot, review, score 1..10}]) gets a `score` from 1 to 10; a row with `story_a`,
    `story_b`, `prompt` and `reviews` ([{a, b, preferred, aspect}], preferred a or b) is compared on PerSE's five
    aspects, `score_a` and `score_b` being the chance that each is chosen. The first row's columns decide;
    `--without texts` shows plots and scores only.

    **scalar** gives the reward of a model with a Bradley-Terry head: `prompt` and `response` in, `score` (a logit) out.
    **tournament** is `adjudge rank` with all pairs, and takes the options of pairwise. **package.module:name** is a
    judge of your own, whose module is also found in the folder where you are.

    A run can be stopped at any time (Ctrl-C, kill -9) and continued with --resume; nothing is lost or judged twice. Its
    journal holds the texts too: `adjudge judge v.jsonl.journal --judge rubric --rubric new.toml` judges them anew, of
    pairs with `--columns response=story_a` the first ones, with story_b the others.
    """
    options = judge_options(locals())
    from adjudge.commands.contest import Contest
    from adjudge.commands.judge import judge_file
    from adjudge.commands.rank import rank_file

    if judge == "tournament":
        rank_file(
            texts,
            output or beside(texts, ".ranks.jsonl"),
            judge=None,
            contest=Contest(seed=options.pop("seed", 0)),
            options=options,
            run_options=run_options,
            report=report,
            limit=limit,
            columns=columns,
        )
        return
    judge_file(
        texts,
        output or beside(texts, ".verdicts.jsonl"),
        judge=judge,
        options=options,
        run_options=run_options,
        report=report,
        limit=limit,
        columns=columns,
    )
