"""The `adjudge` command: judge, rank, replay, score, show prompts, serve, list models, train, measure."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import typer

from adjudge.engine.errors import AdjudgeError

app = typer.Typer(
    help="LLM judges as rewards. Start with: adjudge judge pairs.jsonl -o verdicts.jsonl",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
bench = typer.Typer(help="Measure on this machine.", no_args_is_help=True)
app.add_typer(bench, name="bench")
prompts = typer.Typer(help="List the prompts of all judges, or show what one asks.", invoke_without_command=True)
app.add_typer(prompts, name="prompts")
train = typer.Typer(help="Train a policy on what judges pay for.", no_args_is_help=True)
app.add_typer(train, name="train")

DEFAULT_MODEL = "smollm2-135m"

Model = Annotated[
    str,
    typer.Option(help="An alias (see `adjudge models`), a folder, a hub id, a .gguf file, or dummy:<config>."),
]
Adapter = Annotated[Path | None, typer.Option(help="A PEFT folder: a LoRA adapter to lay over the model.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
Replicas = Annotated[int, typer.Option(help="Engines in processes of their own, on Ray, that share the work.", min=1)]
Dtype = Annotated[str, typer.Option(help="auto (float32 on CPU, bfloat16 on GPU), float32, bfloat16, float16.")]
Aspects = Annotated[
    str, typer.Option(help="hanna, storyer, or names after commas; your own as name=what it means; name*3 weighs.")
]
Orders = Annotated[
    Literal["both", "ab"], typer.Option(help="Both orders cancel position bias; ab shows the first story first only.")
]
CutTexts = Annotated[
    Literal["middle", "head", "tail", "never"],
    typer.Option(help="What goes of texts too long for the model; never: abstain instead."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an earlier run of the same output.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Forget an earlier run of the same output.")]
JournalFile = Annotated[
    Path | None, typer.Option(help="Where finished verdicts are kept (default: beside the output).")
]

Report = Annotated[Path | None, typer.Option(help="Also write a self-contained HTML report here.")]

# Options of judges: None where the user says nothing, and the judge's own choice holds.
JudgeAspects = Annotated[
    str | None,
    typer.Option(
        help="hanna (default), storyer, perse (default of personal), or names after commas;"
        " your own as name=what it means; name*3 weighs."
    ),
]
JudgeOrders = Annotated[
    Literal["both", "ab"] | None,
    typer.Option(help="Both orders (default) cancel position bias; ab shows the first text first only."),
]
Rubric = Annotated[
    Path | None,
    typer.Option(help="TOML or JSON of criteria, or six or igniting; for rows without one of their own (rubric)."),
]
Scheme = Annotated[
    Literal["fixed", "free", "binary"] | None,
    typer.Option(
        help="fixed: points that sum to the total (default where the rubric states one); free: points, levels or"
        " weights; binary: met or not (rubric)."
    ),
]
Principles = Annotated[Path | None, typer.Option(help="TOML, JSON or plain lines of principles (principle).")]
Examples = Annotated[
    Path | None,
    typer.Option(help="JSONL of good texts to compare with: prompt, response (debate; a --url must embed)."),
]
Without = Annotated[
    str | None,
    typer.Option(
        help="Leave out, names after commas: nodes of a tree; retrieval, positive, negative, judge or reflect of a"
        " debate; texts of earlier reviews (personal)."
    ),
]
TreeWeights = Annotated[
    str | None,
    typer.Option(
        help="equal (default), generated: the model writes them once for an instruction; or leaf=number after"
        " commas (tree)."
    ),
]
EarlierReviews = Annotated[
    int | None, typer.Option(help="Earlier reviews of the reader to show (personal: 3, of pairs 1).", min=0, max=5)
]
Form = Annotated[
    Literal["fixed", "parity"] | None,
    typer.Option(help="parity: the formulas as published; fixed (default): without their flaws (tree, rubric)."),
]
Mode = Annotated[
    Literal["direct", "reasoned"] | None,
    typer.Option(help="direct (default): scores only; reasoned: the model writes an analysis before it scores."),
]
Language = Annotated[str | None, typer.Option(help="Language of the prompts (en); see `adjudge prompts`.")]
Layout = Annotated[
    Literal["shared", "paper"] | None,
    typer.Option(help="Order of a prompt's parts: shared (default) computes least, paper is as published."),
]
MinMass = Annotated[
    float | None, typer.Option(help="Probability the labels must have together, or the score abstains (0.01).")
]
JudgeCut = Annotated[
    Literal["middle", "head", "tail", "never"] | None,
    typer.Option(help="What goes of texts too long for the model (middle); never: abstain instead."),
]


@app.command("judge")
def judge_command(
    texts: Annotated[
        Path, typer.Argument(help="JSONL or CSV of pairs, or of single texts; or a journal, to judge its texts again.")
    ],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Verdicts, JSONL in input order.")] = None,
    judge: Annotated[
        Literal["pairwise", "pointwise", "rubric", "tree", "principle", "debate", "personal", "scalar", "tournament"],
        typer.Option(help="Which judge; see below for the columns each reads."),
    ] = "pairwise",
    model: Annotated[
        str | None,
        typer.Option(help=f"As in `adjudge models` (default: {DEFAULT_MODEL}; with --url the server's only one)."),
    ] = None,
    adapter: Adapter = None,
    url: Annotated[
        str | None, typer.Option(help="Ask the OpenAI-compatible server there; its key is $ADJUDGE_API_KEY.")
    ] = None,
    aspects: JudgeAspects = None,
    orders: JudgeOrders = None,
    rubric: Rubric = None,
    scheme: Scheme = None,
    principles: Principles = None,
    examples: Examples = None,
    without: Without = None,
    weights: TreeWeights = None,
    k: EarlierReviews = None,
    form: Form = None,
    mode: Mode = None,
    max_tokens: Annotated[int | None, typer.Option(help="Tokens of an analysis at most (512).", min=1)] = None,
    temperature: Annotated[float | None, typer.Option(help="How freely it is written (0.7).", min=0.0)] = None,
    samples: Annotated[int | None, typer.Option(help="Analyses of each question, averaged (1).", min=1)] = None,
    attempts: Annotated[
        int | None, typer.Option(help="How often a text without readable scores is written in all (3).", min=1)
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed draws other analyses (0).")] = None,
    language: Language = None,
    layout: Layout = None,
    min_mass: MinMass = None,
    cut: JudgeCut = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    report: Report = None,
    journal: JournalFile = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
    replicas: Replicas = 1,
) -> None:
    """Judge a file of texts; what each judge reads and writes stands below.

    **pairwise** compares two stories aspect by aspect. A row has `story_a`, `story_b` and `prompt` (or `prompt_a` and
    `prompt_b`), optionally `id`; further columns pass through, and `expected` (a, b or tie) is compared with the
    verdicts. Each line of the output has `preference`, the probability that story_a is better (null when the judge
    abstains, with the reason in `abstained`), and per-aspect scores. **pointwise** scores one text by aspects: a row
    has `prompt` and `response`, a line `score` and `breakdown`.

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
    **tournament** is `adjudge rank` with all pairs.

    A run can be stopped at any time (Ctrl-C, kill -9) and continued with --resume; nothing is lost or judged twice. Its
    journal holds the texts too: `adjudge judge v.jsonl.journal --judge rubric --rubric new.toml` judges them anew.
    """
    from adjudge.commands.judge import judge_file

    options = {
        "aspects": aspects,
        "orders": orders,
        "rubric": rubric,
        "scheme": scheme,
        "principles": principles,
        "examples": examples,
        "without": without,
        "weights": weights,
        "k": k,
        "form": form,
        "mode": mode,
        "max_tokens": max_tokens,
        "temperature": temperature,
        "samples": samples,
        "attempts": attempts,
        "seed": seed,
        "language": language,
        "layout": layout,
        "min_mass": min_mass,
        "cut": cut,
    }
    if url is not None and (adapter is not None or replicas > 1):
        raise AdjudgeError("--url asks a server: --adapter and --replicas are its own matter, leave them out")
    if judge == "tournament":
        how = _given({name: value for name, value in options.items() if name in ("aspects", "orders", "cut")})
        if url is not None or replicas > 1 or how.keys() != _given(options).keys():
            raise AdjudgeError("--judge tournament takes --aspects, --orders and --cut: see `adjudge rank` for its own")
        files: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "report": report, "journal": journal}
        where: dict[str, Any] = {"model": model or DEFAULT_MODEL, "adapter": adapter, "device": device, "dtype": dtype}
        rank(texts, output, **how, **files, **where)
        return
    judge_file(
        texts,
        output or texts.with_suffix(".verdicts.jsonl"),
        judge=judge,
        options=_given(options),
        model=model if url is not None else model or DEFAULT_MODEL,
        adapter=adapter,
        url=url,
        earlier="resume" if resume else "overwrite" if overwrite else "refuse",
        report=report,
        journal=journal,
        device=device,
        dtype=dtype,
        replicas=replicas,
    )


@app.command()
def rank(
    groups: Annotated[Path, typer.Argument(help="JSONL of groups: the responses to one prompt.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Rankings, JSONL in input order.")] = None,
    pairing: Annotated[
        Literal["all", "circular", "uncertain"],
        typer.Option(help="Every pair; each with k others; or those pairs that tell most, round by round."),
    ] = "all",
    k: Annotated[int, typer.Option(help="How many others each text meets (circular; uncertain: on average).")] = 4,
    budget: Annotated[
        int | None, typer.Option(help="Pairs a group (uncertain; default: what circular asks).", min=1)
    ] = None,
    ranking: Annotated[
        Literal["bradley_terry", "borda"], typer.Option(help="How preferences become strengths.")
    ] = "bradley_terry",
    seed: Annotated[int, typer.Option(help="Decides who meets whom.")] = 0,
    model: Model = DEFAULT_MODEL,
    adapter: Adapter = None,
    aspects: Aspects = "hanna",
    orders: Orders = "both",
    cut: CutTexts = "middle",
    resume: Resume = False,
    overwrite: Overwrite = False,
    report: Report = None,
    journal: JournalFile = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Rank the responses to each prompt by comparing pairs of them.

    Each row has `prompt`, `responses` (a list of texts), optionally `reference` (a text that takes part) and `id`;
    further columns pass through. Each line of the output has `strengths`, one for each response (log-odds; null where
    nothing was answered), their standard `errors`, `preferences` (the probability of being better than the reference),
    and `outcomes`, every pair that was asked.

    A run can be stopped at any time (Ctrl-C, kill -9) and continued with --resume; no pair is lost or judged twice.
    """
    from adjudge.commands.rank import rank_file

    rank_file(
        groups,
        output or groups.with_suffix(".ranks.jsonl"),
        pairing=pairing,
        k=k,
        budget=budget,
        ranking=ranking,
        seed=seed,
        model=model,
        adapter=adapter,
        aspects=aspects,
        orders=orders,
        cut=cut,
        earlier="resume" if resume else "overwrite" if overwrite else "refuse",
        report=report,
        journal=journal,
        device=device,
        dtype=dtype,
    )


@app.command()
def replay(
    source: Annotated[Path, typer.Argument(help="The journal of a run, or the output beside it.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="JSONL (default: standard output).")] = None,
    rows: Annotated[Path | None, typer.Option(help="Only these rows, as they were judged (default: all).")] = None,
    run: Annotated[int | None, typer.Option(help="Which run of the journal (default: the latest).", min=1)] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the runs of the journal instead.")] = False,
    aspects: JudgeAspects = None,
    orders: JudgeOrders = None,
    rubric: Rubric = None,
    scheme: Scheme = None,
    without: Without = None,
    weights: TreeWeights = None,
    form: Form = None,
    min_mass: MinMass = None,
    ranking: Annotated[
        Literal["bradley_terry", "borda"] | None, typer.Option(help="How preferences become strengths (rank).")
    ] = None,
    report: Report = None,
) -> None:
    """Give the verdicts of an earlier run again, from its journal alone: the same lines, byte for byte, and no model.

    With options of the judge the old answers are scored anew, as if it had been run with them: other weights
    (`--aspects "coherence*3,surprise"`), fewer aspects, one order, a rubric with other weights, another `--min-mass`.
    What was never asked cannot be scored: for another wording or new criteria judge the texts again, which the journal
    holds (`adjudge judge JOURNAL`). Rankings (`adjudge rank`) are replayed alike.
    """
    from adjudge.commands.replay import list_runs, replay_file

    if list_:
        list_runs(source)
        return
    changes = {
        "aspects": aspects,
        "orders": orders,
        "rubric": rubric,
        "scheme": scheme,
        "without": without,
        "form": form,
        "min_mass": min_mass,
        "ranking": ranking,
    }
    replay_file(source, output, rows=rows, number=run, changes=_given(changes), report=report)


@app.command()
def score(
    prompts: Annotated[
        Path | None, typer.Argument(help="JSONL or CSV with a column `prompt`, optionally `labels`.")
    ] = None,
    labels: Annotated[str | None, typer.Option(help="Labels after commas, where rows have none of their own.")] = None,
    prompt: Annotated[str | None, typer.Option(help="Score this one prompt instead of a file.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Put each prompt into the model's chat template.")] = False,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="JSONL (default: standard output).")] = None,
    model: Model = DEFAULT_MODEL,
    adapter: Adapter = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Read the distribution over labels at the end of each prompt, without generating.

    Example: `adjudge score --prompt "The capital of France is" --labels " Paris, Rome"`. Each line of the output has
    `logprobs` by label (summing to one over the labels), `expected` where all labels are numbers, `best`, and `mass`,
    the labels' share of the whole vocabulary's probability. Special-token strings inside a prompt are plain text.
    """
    from adjudge.commands.score import score_file

    score_file(prompts, prompt, labels, output, chat=chat, model=model, adapter=adapter, device=device, dtype=dtype)


@app.command()
def serve(
    model: Model = DEFAULT_MODEL,
    adapter: Annotated[str | None, typer.Option(help="A PEFT folder of a LoRA adapter for the model.")] = None,
    host: Annotated[str, typer.Option(help="0.0.0.0 lets other machines in: give an API key then.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes any free one.", min=0, max=65535)] = 8000,
    api_key: Annotated[
        str | None, typer.Option(help="What clients must send (default: $ADJUDGE_API_KEY; without either, nothing).")
    ] = None,
    aspects: Annotated[
        str, typer.Option(help="What /v1/judge looks at where a request does not say; as in adjudge judge.")
    ] = "hanna",
    max_queue: Annotated[
        int, typer.Option(help="Prompts that may wait, of one request or all; above it, 429.", min=1)
    ] = 10_000,
    max_concurrency: Annotated[int, typer.Option(help="Requests at once; above it, 429.", min=1)] = 1024,
    max_body_mb: Annotated[float, typer.Option(help="Megabytes of one request; above it, 413.", min=0.001)] = 10.0,
    request_timeout: Annotated[
        float, typer.Option(help="Seconds a request may take; what is not done then says so.", min=0.001)
    ] = 600.0,
    stall_timeout: Annotated[
        float, typer.Option(help="Seconds after which a client that neither sends nor reads is dropped.", min=0.001)
    ] = 60.0,
    drain_timeout: Annotated[
        float, typer.Option(help="Seconds that requests under way have left after SIGTERM.", min=0.0)
    ] = 30.0,
    device: Device = "auto",
    dtype: Dtype = "auto",
    replicas: Replicas = 1,
) -> None:
    """Serve a model over HTTP: OpenAI's chat and completions, SGLang's score, judge and rewards.

    SIGTERM or Ctrl-C ends it when the requests under way are answered; a second one at once. `/schema` describes the
    API, `/health` and `/metrics` are for those who watch over it.
    """
    from adjudge.commands.serve import serve as run

    run(
        model=model,
        adapter=adapter,
        host=host,
        port=port,
        api_key=api_key,
        aspects=aspects,
        max_queue=max_queue,
        max_concurrency=max_concurrency,
        max_body_mb=max_body_mb,
        request_timeout=request_timeout,
        stall_timeout=stall_timeout,
        drain_timeout=drain_timeout,
        device=device,
        dtype=dtype,
        replicas=replicas,
    )


@app.command()
def models() -> None:
    """List the models that can be named, and where they are kept."""
    from adjudge.commands.models import print_models

    print_models()


@prompts.callback()
def prompts_command(context: typer.Context) -> None:
    """List the prompts of all judges: their languages, and the versions that journals record."""
    from adjudge.commands.prompts import list_prompts

    if context.invoked_subcommand is None:
        list_prompts()


@prompts.command("show")
def show_prompts(
    judge: Annotated[str, typer.Argument(help="Which judge, as in `adjudge judge --judge`.")],
    rows: Annotated[Path | None, typer.Option(help="Show it for a row of this file (default: an example).")] = None,
    row: Annotated[int, typer.Option(help="Which row.", min=1)] = 1,
    model: Annotated[
        str | None, typer.Option(help="In this model's chat template; only its tokenizer is loaded.")
    ] = None,
    question: Annotated[str | None, typer.Option(help="Which question (default: the first).")] = None,
    every: Annotated[bool, typer.Option("--all", help="All questions.")] = False,
    aspects: JudgeAspects = None,
    orders: JudgeOrders = None,
    rubric: Rubric = None,
    scheme: Scheme = None,
    principles: Principles = None,
    examples: Examples = None,
    without: Without = None,
    weights: TreeWeights = None,
    k: EarlierReviews = None,
    form: Form = None,
    mode: Mode = None,
    language: Language = None,
    layout: Layout = None,
    cut: JudgeCut = None,
) -> None:
    """Show what a judge asks, word for word; of a judge of several rounds, the first.

    Texts of the data stand between ⟦ and ⟧, or in colour on a terminal, and their invisible characters are written out.
    They are shown whole: those too long for a model are shortened when it is asked.
    """
    from adjudge.commands.prompts import show_prompts as show

    options = {
        "aspects": aspects,
        "orders": orders,
        "rubric": rubric,
        "scheme": scheme,
        "principles": principles,
        "examples": examples,
        "without": without,
        "k": k,
        "form": form,
        "mode": mode,
        "language": language,
        "layout": layout,
        "cut": cut,
    }
    show(judge, options=_given(options), rows=rows, row=row, model=model, question=question, every=every)


@train.command("grpo")
def train_grpo(
    recipe: Annotated[Path, typer.Argument(help="TOML: policy, prompts, reward, and how to train.")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on after the last checkpoint of the output.")] = False,
    overwrite: Overwrite = False,
    stop_on: Annotated[
        str | None, typer.Option(help="Guards that end the run, after commas: length, canary, degenerate, ...")
    ] = None,
) -> None:
    """Train a policy with GRPO on a reward of judges and checks.

    A recipe names the `policy`, the `data`, the parts of the `reward`, how the policy writes (`generation`) and how it
    is trained (`optimiser`); examples/recipes/checkable.toml is one that learns in minutes on a CPU. With
    `preset = "qurl"` it is laid over the recipe of a paper (see `adjudge train presets`). The output folder gets
    metrics.jsonl, curves.png, checkpoints and the policy.

    Guards watch the reward and warn when it is being fooled; those named by --stop-on end the run.

    Several processes train together with `accelerate launch -m adjudge train grpo recipe.toml`. A run that was stopped
    goes on with --resume as if it had not been.
    """
    from adjudge.commands.train import train_grpo_file

    train_grpo_file(recipe, resume=resume, overwrite=overwrite, stop_on=stop_on)


@train.command("sft")
def train_sft(
    recipe: Annotated[Path, typer.Argument(help="TOML: policy, rows with prompt and response, and how to train.")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on after the last checkpoint of the output.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Train a policy on the responses of a file: a cold start before GRPO, or the baseline beside it.

    The presets are "qurl-cold-start" (rows with think and answer, which become QuRL's tags) and "evolvr-generator-sft"
    (stories rated above 3.5). Output, processes and --resume are those of `adjudge train grpo`.
    """
    from adjudge.commands.train import train_sft_file

    train_sft_file(recipe, resume=resume, overwrite=overwrite)


@train.command("curves")
def train_curves(
    folder: Annotated[Path, typer.Argument(help="The output folder of a run, finished or under way.")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A .png, .svg or .pdf (curves.png).")] = None,
) -> None:
    """Draw reward, KL, length and abstention of a run over its steps."""
    from adjudge.commands.train import draw_run

    draw_run(folder, output)


@train.command("presets")
def train_presets(
    name: Annotated[str | None, typer.Argument(help="Show the file of this one.")] = None,
) -> None:
    """List the recipes of the papers: what a paper does not give is ours, and marked so."""
    from adjudge.commands.train import print_presets

    print_presets(name)


@bench.command("judge")
def bench_judge(
    pairs: Annotated[Path, typer.Argument(help="JSONL or CSV of pairs.")] = Path("examples/pairs.jsonl"),
    model: Model = DEFAULT_MODEL,
    mode: Annotated[
        Literal["score", "generate"],
        typer.Option(help="score: read label distributions; generate: write an analysis and a score of each story."),
    ] = "score",
    load: Annotated[
        bool, typer.Option("--load", help="Send single questions at random times, and measure how long each waits.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(help="Pairs to measure (default: 4; 1 to write; under load as needed).", min=1)
    ] = None,
    repeats: Annotated[int, typer.Option(help="Runs of each variant; the median counts.", min=1)] = 3,
    max_tokens: Annotated[int, typer.Option(help="Tokens of each text to write.", min=1)] = 16,
    rates: Annotated[
        str | None,
        typer.Option(
            help="Requests a second under load, after commas (default: 0.3, 0.6, 0.9 of what adjudge can do)."
        ),
    ] = None,
    requests: Annotated[int, typer.Option(help="Requests at each rate.", min=1)] = 24,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also write the table as CSV, and of a load a plot beside it.")
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Time the same pairs through adjudge and through its peers, and compare their answers.

    Under load the requests of a rate are due at random times (a Poisson process, the same in every run), and a
    latency counts from when its request was due, also where it could only be sent later.
    """
    from adjudge.bench.judge import bench_judge as run

    run(
        pairs,
        model=model,
        mode=mode,
        load=load,
        limit=limit,
        repeats=repeats,
        max_tokens=max_tokens,
        rates=rates,
        requests=requests,
        output=output,
        device=device,
        dtype=dtype,
    )


@bench.command("judges")
def bench_judges(
    data: Annotated[Path, typer.Argument(help="The folder of data sets: autoj_pairs, hanna, openmeva_roc, ...")],
    only: Annotated[str | None, typer.Option(help="Judges after commas (default: all).")] = None,
    minutes: Annotated[float, typer.Option(help="A judge's run ends after about so long.", min=0.01)] = 10.0,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Also write the table as CSV.")] = None,
    model: Model = DEFAULT_MODEL,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Run every judge over a sample of its public data set: verdicts, abstentions, tokens, agreement with people."""
    from adjudge.bench.judges import bench_judges as run

    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    run(data, only=names, minutes=minutes, model=model, device=device, dtype=dtype, output=output)


@bench.command("probe")
def bench_probe(
    judge: Annotated[
        Literal["pointwise", "rubric", "tree", "principle", "debate", "scalar"], typer.Option(help="Whose rewards.")
    ] = "pointwise",
    aspects: JudgeAspects = None,
    rubric: Rubric = None,
    scheme: Scheme = None,
    principles: Principles = None,
    language: Language = None,
    model: Model = DEFAULT_MODEL,
    adapter: Adapter = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Try to fool a judge: empty, repeated, copied and padded texts, and instructions to the judge inside texts.

    Each probe is held against the plain text it was made from; the shipped canaries, of known order, come first.
    """
    from adjudge.bench.probes import bench_probe as run
    from adjudge.rewards.specification import EngineSpec

    options = {
        "aspects": aspects,
        "rubric": rubric,
        "scheme": scheme,
        "principles": principles,
        "language": language,
    }
    engine = EngineSpec(model, adapter=None if adapter is None else str(adapter), device=device, dtype=dtype)
    run(judge, _given(options), engine)


@bench.command("kernels")
def bench_kernels(
    kernels: Annotated[Literal["all", "head", "attention"], typer.Option(help="What to measure.")] = "all",
    sizes: Annotated[
        Literal["auto", "small", "full"], typer.Option(help="auto: small on CPU (two minutes), full on GPU.")
    ] = "auto",
    rounds: Annotated[int, typer.Option(help="Batches of calls of each variant; the median counts.", min=5)] = 9,
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="Also time torch.compile.")] = True,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Also write CSV here, and a plot beside it.")
    ] = None,
    predict: Annotated[
        Literal["h100", "h200"] | None, typer.Option(help="Measure nothing: what bytes and FLOPs say for this GPU.")
    ] = None,
    earlier: Annotated[
        Path | None, typer.Option("--from", help="Measure nothing: print and plot this CSV of an earlier run.")
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "auto",
) -> None:
    """Check the kernels against float64, then time them beside their peers and the limits of this machine."""
    from adjudge.bench.kernels import bench_kernels as run

    run(
        kernels=kernels,
        sizes=sizes,
        device=device,
        dtype=dtype,
        rounds=rounds,
        compiled=compiled,
        output=output,
        predict=predict,
        earlier=earlier,
    )


@bench.command("compile")
def bench_compile() -> None:
    """Compile every Triton kernel for GPUs that are not here: registers, spilled bytes, shared memory."""
    from adjudge.bench.compile import bench_compile as run

    run()


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Those that the user gave."""
    return {name: value for name, value in options.items() if value is not None}


def main() -> NoReturn:
    """Run the command line: mistakes the user can mend are one sentence on stderr and exit code 2."""
    try:
        app()
    except AdjudgeError as error:
        print(f"adjudge: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    sys.exit(0)
