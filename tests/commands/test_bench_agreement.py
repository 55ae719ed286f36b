"""`adjudge bench agreement` as a user meets it, in this process, with tiny models of random weights."""

from __future__ import annotations

import csv
import json
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from filelock import FileLock
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import Score
from tests.engine.remote.peer import Peer, says
from tests.jsonl import read_lines, write_lines

Run = Callable[..., Result]

pytestmark = pytest.mark.usefixtures("without_plots")

TINY = ("--model", "dummy:tiny-llama", "--min-mass", "0", "--draws", "100", "-o", "out")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    stories = [
        {"story_id": n, "prompt": f"Tell {n}.", "story": f"Story {n}, " * (n + 1), "ratings": {"Wit": [1 + n % 5, 3]}}
        for n in range(7)
    ]
    write_lines("stories.jsonl", *stories)
    texts = [{"prompt": f"P {n // 2}", "chosen": f"Good {n}.", "rejected": f"Bad {n}"} for n in range(6)]
    write_lines("pairs.jsonl", *texts)
    return lambda *arguments: CliRunner().invoke(app, ["bench", "agreement", *arguments])


def figures(folder: str = "out") -> dict[tuple[str, str, str], str]:
    with Path(folder, "agreement.csv").open() as file:
        return {(row["of"], row["judge"], row["figure"]): row["value"] for row in csv.DictReader(file)}


def record(folder: str = "out") -> Any:
    return json.loads(Path(folder, "agreement.json").read_text())


WIT = ("--aspects", "wit=Is it funny?")


def test_a_run_that_ended_before_its_first_verdict_can_be_begun_and_resumed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for how in ((), ("--resume",)):
        assert "nowhere" in str(run("stories.jsonl", *WIT, "-o", "out", "--model", "nowhere").exception)
        assert Path("out/texts.jsonl").is_file()
        result = run("stories.jsonl", *TINY, *WIT, *how)
        assert result.exit_code == 0, result.output
        shutil.rmtree("out")
    assert "nowhere" in str(run("stories.jsonl", *WIT, "-o", "out", "--model", "nowhere").exception)
    with pytest.raises(AdjudgeError, match=r"texts.jsonl exists, and no run's journal beside it"):
        raise run("stories.jsonl", *TINY, *WIT, "--limit", "6").exception  # type: ignore[misc]


OWN = """
from adjudge import OwnJudge

class Funny(OwnJudge):
    range = (1.0, 5.0)

    def questions(self, item):
        return [self.question("wit", "Is it funny? {text}", ["1", "2", "3", "4", "5"], "Grade: ", text=item.response)]

class Leveled(Funny):
    reads = ("level",)

    def questions(self, item):
        words = f"Is it funny for level {item.columns['level']['of']}? {{text}}"
        return [self.question("wit", words, ["1", "2", "3", "4", "5"], "Grade: ", text=item.response)]

class Nosy(Funny):
    reads = ("human",)

class Unranged(Funny):
    def score_of(self, parts):
        return parts["wit"].score
"""


def test_a_judge_of_ones_own_is_held_against_people(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    Path("funny_judges.py").write_text(OWN)
    result = run("stories.jsonl", *TINY, "--judge", "funny_judges:Funny")
    assert result.exit_code == 0, result.output
    name = "funny_judges:Funny"
    assert float(figures()["overall", name, "mse"]) >= 0 and ("wit", name, "pearson") in figures()
    assert run("stories.jsonl", *TINY[:-1], "ranked", "--judge", "funny_judges:Unranged").exit_code == 0
    ranked = figures("ranked")
    assert ("overall", "funny_judges:Unranged", "spearman") in ranked
    assert ("overall", "funny_judges:Unranged", "mse") not in ranked, "it says nothing of its scale"
    assert run("pairs.jsonl", *TINY[:-1], "pairs", "--judge", "funny_judges:Funny").exit_code == 0
    levels: list[dict[str, Any]] = [{"of": "a"}, {"of": None}]
    rows = ({"prompt": f"P {n}", "response": "r", "scores": 3, "level": level} for n, level in enumerate(levels))
    write_lines("levels.jsonl", *rows)
    assert run("levels.jsonl", *TINY[:-1], "levels", "--judge", "funny_judges:Leveled").exit_code == 0
    assert [line["level"] for line in read_lines("levels/verdicts.jsonl")] == levels
    for file, judge, message in (
        (
            "stories.jsonl",
            "Leveled",
            'line 1 of stories.jsonl: "level" is missing .funny_judges:Leveled reads it.: give',
        ),
        ("pairs.jsonl", "Leveled", 'reads "level", and texts of pairs have no columns: measure it on single texts'),
        ("stories.jsonl", "Nosy", 'reads "human", which is what people said: no judge is shown that'),
    ):
        with pytest.raises(AdjudgeError, match=message):
            raise run(file, *TINY[:-1], "none", "--judge", f"funny_judges:{judge}").exception  # type: ignore[misc]
    assert not Path("none").exists()
    with pytest.raises(AdjudgeError, match='--judge is "tournament": choose pointwise, pairwise, .*, scalar, or write'):
        raise run("stories.jsonl", *TINY, "--judge", "tournament").exception  # type: ignore[misc]


def test_tables_and_plots_are_written_though_nobody_reads_what_is_printed(run: Run, unread: None) -> None:
    assert isinstance(run("stories.jsonl", *TINY, *WIT).exception, BrokenPipeError) and figures()
    assert {path.name for path in Path("out").glob("*.png")} == {"scores.png", "reliability.png"}


def test_a_run_whose_texts_had_no_room_goes_on_with_resume(run: Run) -> None:
    stories = [{"prompt": f"Tell {n}.", "story": f"Story {n}. " * 9000, "ratings": {"Wit": 1 + n}} for n in range(2)]
    write_lines("stories.jsonl", *stories)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, limits[1]))
    try:
        assert run("stories.jsonl", *TINY, *WIT, "-o", "out").exit_code == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    result = run("stories.jsonl", *TINY, *WIT, "-o", "out", "--resume")
    assert result.exit_code == 0, result.output
    assert len(read_lines("out/verdicts.jsonl")) == 2


def test_a_server_that_answers_nothing_ends_the_run_with_an_error(run: Run) -> None:
    peer = Peer("adjudge", Engine("dummy:tiny-llama", kv_cache_gb=0.05))
    peer.script.extend([says(500)] * 99)
    try:
        result = run("stories.jsonl", *WIT, "--draws", "100", "-o", "out", "--url", peer.url, "--retries", "0")
    finally:
        peer.close()
    assert "nothing was answered" in str(result.exception)


def test_a_reward_model_has_no_likelihoods_and_leaves_no_journal_of_them(run: Run) -> None:
    how = ("--judge", "scalar", "--model", "dummy:tiny-qwen3-reward", "--draws", "100", "-o", "out", "--baselines")
    result = run("pairs.jsonl", *how)
    assert result.exit_code == 0, result.output
    assert "bag of words" in {judge for _, judge, _ in figures()} and not list(Path("out").glob("likelihoods*"))
    assert "without how likely the bare model finds the texts, which a reward model does not tell" in result.stderr


def test_two_runs_do_not_ask_for_likelihoods_in_one_folder(run: Run) -> None:
    Path("out").mkdir()
    with FileLock("out/likelihoods.journal.lock"):
        result = run("pairs.jsonl", *TINY, "--limit", "2", "--baselines")
    with pytest.raises(AdjudgeError, match=r"another run is writing with .*likelihoods.journal"):
        raise result.exception  # type: ignore[misc]


def test_texts_are_judged_compared_and_resumed_for_nothing(run: Run) -> None:
    result = run("stories.jsonl", *TINY, *WIT, "--limit", "6", "--baselines")
    assert result.exit_code == 0, result.output
    found = figures()
    assert {judge for _, judge, _ in found} == {
        "pointwise",
        "length only",
        "bag of words",
        "likelihood (bare model)",
        "one rater, by the others",
    }
    assert -1 <= float(found["wit", "pointwise", "pearson"]) <= 1 and float(found["wit", "pointwise", "ece"]) >= 0
    setting = record()["setting"]
    assert (setting["rows"], setting["prompts"], setting["model"], setting["abstained"]) == (
        6,
        6,
        "dummy:tiny-llama",
        {},
    )
    assert len(record()["confusion"]) == 25 and "torch" in setting["machine"]
    assert {path.name for path in Path("out").iterdir()} >= {"verdicts.jsonl", "texts.jsonl"}
    assert "6 rows of 6 prompts; abstained: 0" in result.output and "tokens asked for (1 in" in result.output
    with pytest.raises(AdjudgeError, match="--resume continues that run"):
        raise run("stories.jsonl", *TINY, *WIT, "--limit", "6").exception  # type: ignore[misc]
    before = Path("out/verdicts.jsonl").read_bytes()
    again = run("stories.jsonl", *TINY, *WIT, "--limit", "7", "--resume")
    assert "verdicts/s, 6 verdicts remembered" in again.output
    assert again.exit_code == 0 and set(before.splitlines()) < set(Path("out/verdicts.jsonl").read_bytes().splitlines())


def test_a_debate_is_shown_examples(run: Run) -> None:
    write_lines("good.jsonl", {"prompt": "Greet.", "response": "A text that is good."})
    write_lines("labels.jsonl", *({"prompt": "P", "response": f"R {n}", "label": n} for n in range(2)))
    result = run("labels.jsonl", *TINY, "--judge", "debate", "--examples", "good.jsonl", "--max-tokens", "8")
    assert result.exit_code == 0, result.output
    assert record()["setting"]["options"]["examples"] == "good.jsonl"


def test_an_ensemble_has_all_its_scores_in_one_list_besides(run: Run) -> None:
    result = run("stories.jsonl", *TINY, *WIT, "--judge", "ensemble", "--partners", "2")
    assert result.exit_code == 0, result.output
    rows = {(line["target"], line["judge"]): line["rows"] for line in record()["lines"]}
    assert rows["wit", "ensemble"] == 7 and rows["all scores", "ensemble"] == 7 * 2 * 2


def test_a_pair_that_had_no_time_costs_its_own_scores_and_no_others(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write_lines("stories.jsonl", *read_lines("stories.jsonl")[:3])
    judges = {"one": ("--judge", "ensemble", "--partners", "2"), "protocol": ("--protocol", "evolvr")}

    def judged(name: str) -> dict[tuple[str, str], Any]:
        result = run("stories.jsonl", *TINY[:-1], name, *WIT, *judges[name.split("/")[0]])
        assert result.exit_code == 0, result.output
        return {(line["target"], line["judge"]): (line["rows"], line["figures"]) for line in record(name)["lines"]}

    whole = {name: judged(f"{name}/whole") for name in judges}
    score_iter = Engine.score_iter

    def hurried(engine: Engine, prompts: Any, labels: Any, **how: Any) -> Iterator[tuple[int, Score]]:
        for place, score in score_iter(engine, prompts, labels, **how):
            text = "".join(segment.text for segment in prompts[place].segments)
            late = 0 <= text.find("Story 0,") < text.find("Story 1,")
            yield place, Score.abstained(score.labels, "timeout") if late else score

    monkeypatch.setattr(Engine, "score_iter", hurried)
    holed = {name: judged(f"{name}/holed") for name in judges}
    assert holed["one"]["all scores", "ensemble"][0] == whole["one"]["all scores", "ensemble"][0] - 2 == 10
    assert holed["protocol"].keys() == whole["protocol"].keys()
    assert holed["protocol"]["N = 2", "ensemble, all scores"][0] == 10
    alone = {line for line in whole["protocol"] if line[0] == "N = 0" or line[1].startswith("published")}
    assert len(alone) > 3 and all(holed["protocol"][line] == whole["protocol"][line] for line in alone)


def test_evolvrs_protocol_asks_each_pair_once_and_leaves_out_what_the_texts_cannot_give(run: Run) -> None:
    result = run("stories.jsonl", *TINY, *WIT, "--protocol", "evolvr", "--limit", "3")
    assert result.exit_code == 0, result.output
    targets = dict.fromkeys(line["target"] for line in record()["lines"])
    assert list(targets) == ["N = 0", "N = 1", "N = 2", "(A, B)", "(B, A)"]
    assert "left out, for want of texts: N = 4, 8, 16" in result.output
    assert figures()["N = 2", "published: EvolvR 7B on HANNA", "pearson"] == "0.585200"


def test_pairs_are_judged_and_plotted_by_a_judge_of_pairs_or_of_single_texts(run: Run) -> None:
    result = run("pairs.jsonl", *TINY, *WIT)
    assert result.exit_code == 0, result.output
    assert {name for of, judge, name in figures() if (of, judge) == ("overall", "pairwise")} == {
        "accuracy",
        "accuracy_with_ties",
        "consistency",
        "bias",
        "ece",
    }
    for judge, verdicts in (("pointwise", 6), ("principle", 12)):
        options = WIT if judge == "pointwise" else ()
        single = run("pairs.jsonl", *TINY, *options, "--judge", judge, "-o", judge)
        assert single.exit_code == 0, single.output
        assert 0 <= float(figures(judge)["overall", judge, "accuracy"]) <= 1
        assert ("overall", judge, "bias") not in figures(judge)
        assert len(Path(judge, "verdicts.jsonl").read_text().splitlines()) == verdicts


HOWTO = {"id": "i", "task": "open", "genre": "prose", "instruction": "Write.", "information": "", "reference": "R."}


def test_the_trees_protocol_leaves_out_nodes_without_asking_again(run: Run) -> None:
    outputs = {"deepseek-r1": "It rains.", "o3-mini-2025-01-31": "Snow.", "glm-4-plus-250111": "# Fog\n\nand mist."}
    write_lines("open.jsonl", *(HOWTO | {"id": f"i{n}", "outputs": outputs} for n in range(2)))
    result = run("open.jsonl", *TINY, "--protocol", "tree")
    assert result.exit_code == 0, result.output
    targets = list(dict.fromkeys(line["target"] for line in record()["lines"]))
    assert targets[0] == "open: whole tree" and "open: format alone" in targets and len(targets) == 8
    assert figures()["open: whole tree", "published: ToW, GPT-4o", "kendall"] == "0.780000"
    assert figures()["open: one rubric", "published: auto-plan, GPT-4o", "spearman"] == "0.770000"
    assert figures()["open: one rubric", "rubric", "spearman"] != figures()["open: whole tree", "tree", "spearman"]
    assert float(figures()["open: content alone", "tree", "spearman"]) != float(
        figures()["open: impression alone", "tree", "spearman"]
    )


def test_a_text_that_had_no_time_is_missing_from_each_tree_and_no_other_is(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = {"deepseek-r1": "It rains.", "o3-mini-2025-01-31": "Snow.", "glm-4-plus-250111": "Hail."}
    write_lines("open.jsonl", *(HOWTO | {"id": f"i{n}", "outputs": outputs} for n in range(2)))
    score_iter = Engine.score_iter

    def hurried(engine: Engine, prompts: Any, labels: Any, **how: Any) -> Iterator[tuple[int, Score]]:
        for place, score in score_iter(engine, prompts, labels, **how):
            late = any("Hail." in segment.text for segment in prompts[place].segments)
            yield place, Score.abstained(score.labels, "timeout") if late else score

    monkeypatch.setattr(Engine, "score_iter", hurried)
    result = run("open.jsonl", *TINY, "--protocol", "tree")
    assert result.exit_code == 0, result.output
    lines = [line for line in record()["lines"] if line["judge"] == "tree"]
    assert len(lines) == 7 and record()["setting"]["abstained"] == {"timeout": 4}  # 2 by the tree, 2 by the rubric
    assert all(line["figures"] for line in lines)


def test_qurls_protocol_scores_rubrics_in_three_ways_beside_six_dimensions(run: Run) -> None:
    criteria = "".join(
        f'[[criteria]]\nname = "{name}"\ntext = "Is it?"\nweight = {n}.0\n\n' for n, name in ((1, "a"), (2, "b"))
    )
    Path("r.toml").write_text(f"scale = [1, 3]\n{criteria}")
    write_lines("s.jsonl", *({"prompt": "P", "response": f"R {n}", "scores": n + 1} for n in range(4)))
    result = run("s.jsonl", *TINY, "--protocol", "qurl", "--rubric", "r.toml")
    assert result.exit_code == 0, result.output
    by_target = {line["target"]: line for line in record()["lines"] if "published" not in line["judge"]}
    assert list(by_target) == ["fixed", "free", "binary", "six dimensions"]
    assert by_target["fixed"]["judge"].startswith("not judged: the criteria have weights")
    assert all(by_target[name]["rows"] == 4 for name in ("free", "binary", "six dimensions"))
    assert figures()["six dimensions", "published: QuRL, plain judge, HelloBench", "spearman"] == "0.080000"
    failed = run("s.jsonl", "--model", "nowhere/at-all", "--protocol", "qurl", "--rubric", "r.toml", "-o", "none")
    assert failed.exit_code != 0 and not Path("none/agreement.csv").exists()  # a model that is not there fits no scheme


def test_qurls_protocol_goes_on_where_a_scheme_does_not_fit_the_checklists_of_rows(run: Run) -> None:
    levels = {f"{n}-{n + 1}": "It is so." for n in range(1, 10, 2)}
    checklist = [{"name": f"c{n}", "criteria_description": "Is it?", **levels} for n in range(5)]
    rows = ({"prompt": "P", "response": f"R {n}", "scores": n + 1, "checklist": checklist} for n in range(4))
    write_lines("s.jsonl", *rows)
    result = run("s.jsonl", *TINY, "--protocol", "qurl")
    assert result.exit_code == 0, result.output
    by_target = {line["target"]: line for line in record()["lines"] if "published" not in line["judge"]}
    assert "not judged: line 1 of s.jsonl" in by_target["fixed"]["judge"]
    assert "sum to 50, not to the 10 of the scheme fixed" in by_target["fixed"]["judge"]
    assert all(by_target[name]["rows"] == 4 for name in ("free", "binary", "six dimensions"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ("stories.jsonl", "--judge", "pairwise"),
            "compares pairs, and ratings has single texts: name pointwise or ensemble",
        ),
        (("stories.jsonl", "--judge", "tree", "--protocol", "qurl"), "--protocol qurl is for --judge rubric"),
        (("pairs.jsonl", "--protocol", "evolvr"), "is of single texts, and preferences has pairs"),
        (("stories.jsonl", "--scale", "5"), '--scale is "5": write the worst and the best score'),
        (("stories.jsonl", "--scale", "5,5"), "write two different numbers, the worst score first"),
        (("stories.jsonl", "--scale", "1,inf"), "write two different numbers, the worst score first"),
        (("stories.jsonl", "--scale", "2,5"), "outside the scale of ratings, 2 to 5"),
        (("stories.jsonl", "--judge", "ensemble", "--limit", "3"), "4 partners for each of 3 stories"),
        (("stories.jsonl", "--protocol", "tree", "--without", "format"), "varies --without by itself: leave it out"),
        (("stories.jsonl", "--protocol", "evolvr", "--baselines"), "--baselines do not stand in a paper's table"),
        (("absent.jsonl",), "cannot read absent.jsonl"),
        (("stories.jsonl", "--format", "none"), 'no format is called "none": choose hanna'),
    ],
)
def test_mistakes_are_found_before_a_model_is_looked_for(run: Run, arguments: tuple[str, ...], reason: str) -> None:
    with pytest.raises(AdjudgeError, match=reason):
        raise run(*arguments, "--model", "no/such-model", "-o", "out").exception  # type: ignore[misc]


def test_a_refused_run_leaves_the_texts_of_the_one_before(run: Run) -> None:
    assert run("stories.jsonl", *TINY, *WIT).exit_code == 0
    texts = Path("out/texts.jsonl").read_bytes()
    refused = run("pairs.jsonl", *TINY, "--aspects", "coherence")
    assert isinstance(refused.exception, AdjudgeError) and "--overwrite" in str(refused.exception)
    assert Path("out/texts.jsonl").read_bytes() == texts
