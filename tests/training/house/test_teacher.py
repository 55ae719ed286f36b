"""Stories that small models write on first sentences, and what a teacher makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from adjudge.cli import app
from adjudge.commands import train_teacher as command
from adjudge.commands.options.source import Source
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.sources import ModelSource, open_source, resolve
from adjudge.engine.sampling import Sampling
from adjudge.rewards.journal import Journal
from adjudge.rewards.judges.aspects import parse_aspects
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.verdict import Item
from adjudge.training.bare_model import BareModel
from adjudge.training.house.continuations import Continuation, noisy, of_one_length, several, written_by
from adjudge.training.house.recipe import TextFile
from adjudge.training.house.teacher import Marked, gained_by, judged_by, taught
from adjudge.training.house.texts import stories_of
from adjudge.training.stages import Texts
from tests.engine.remote.peer import Peer, says
from tests.jsonl import read_lines, write_lines
from tests.rewards.scripted import ScriptedEngine

STORY = "The bus was late. Ana waited in the rain. At last it came. She sat down."


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    folder = tmp_path_factory.mktemp("writer")
    opened = open_source(resolve("dummy:tiny-llama"), dtype=torch.float32)
    opened.model.save_pretrained(folder)
    opened.tokenizer.save_pretrained(folder)
    return resolve(str(folder))


def told(text: str, place: int = 0, noise: float = 0.0) -> Continuation:
    return Continuation(place, "A bus.", noise, text)


def test_noise_is_of_the_seed_alone_and_as_large_as_was_said(writer: ModelSource) -> None:
    with noisy(writer, 0.1, 3) as one, noisy(writer, 0.1, 3) as again, noisy(writer, 0.1, 4) as other:
        fingerprints = [resolve(folder).fingerprint for folder in (one, again, other)]
        assert fingerprints[0] == fingerprints[1] and len({*fingerprints, writer.fingerprint}) == 3
        before, after = (load_file(Path(folder) / "model.safetensors") for folder in (writer.path, one))
        for name, weight in before.items():
            off = after[name] - weight
            if weight.dim() < 2:
                assert not off.any(), name
            elif weight.numel() > 4000:
                assert float(off.std() / weight.std()) == pytest.approx(0.1, rel=0.1), name
                assert abs(float((off * weight).mean() / off.std() / weight.std())) < 0.1, name
    assert not Path(one).exists()
    with noisy(writer, 0.0, 3) as own:
        assert own == writer.path
    with (
        pytest.raises(AdjudgeError, match="no \\*.safetensors to put noise on"),
        noisy(resolve("dummy:tiny-llama"), 1, 0),
    ):
        pass


def test_a_story_is_what_is_whole_and_at_least_three_sentences(tiny: Engine, book: Journal) -> None:
    answers = {"one": f"Sure, here it is!\n\n{STORY} And then she", "two": "Too short. Really.", "three": STORY}
    engine = ScriptedEngine(
        tiny, lambda shown, before: (next(answers[key] for key in answers if key in shown), "length")
    )
    rows = [Row(f"line {number}", {"prompt": f" {key} ", "text": STORY}) for number, key in enumerate(answers)]
    stage = written_by(Texts(engine, Sampling(max_tokens=64, temperature=1.0), book, unended=True), rows, 0.1)
    assert [(one.place, one.prompt, one.text) for one in stage.kept] == [(0, "one", STORY), (2, "three", STORY)]
    [drop] = stage.dropped
    assert (drop.stage, drop.reason, drop.row["prompt"]) == ("write, noise 0.1", "too_short", "two")
    whole = written_by(Texts(engine, Sampling(max_tokens=64, temperature=1.0), book), rows[:1], 0.1)
    assert not whole.kept and whole.dropped[0].reason == "cut_short"


def test_the_stories_on_one_sentence_are_as_long_as_its_shortest() -> None:
    written = [told("A. B. C. D.", 1, 0.1), told("E. F. G.", 1), told("H. I. J.", 0), told("K. L. M. N.", 2)]
    together = several("together", written, lambda one: one.place)
    assert [one.text for one in of_one_length(together.kept)] == ["A. B. C.", "E. F. G."]
    assert [(drop.reason, drop.row.place) for drop in together.dropped] == [("alone", 0), ("alone", 2)]


def test_the_teacher_adds_what_the_context_gains_to_the_judge() -> None:
    marks = [
        Marked(told(text), (judged,), (gain,))
        for text, judged, gain in (("A.", 1, 0.3), ("B.", 2, 0.1), ("C.", 3, 0.2))
    ]
    assert [one.text for one in taught(marks, 1.0)] == ["A.", "B.", "C."]
    # judge: -1.2247, 0, 1.2247; gain: 1.2247, -1.2247, 0; their sums 0, -1.2247, 1.2247 have a deviation of 1
    assert [one.score for one in taught(marks, 1.0)] == [3.6, 2.68, 4.52]
    assert [one.score for one in taught(marks, 0.0)] == [2.68, 3.6, 4.52]
    assert [one.score for one in taught([marks[0]] * 3, 1.0)] == [3.6] * 3 and taught([], 1.0) == []
    far = [Marked(told("A."), (value,), (0.0,)) for value in (*[2.0] * 30, 1.0, 3.0)]
    assert [one.score for one in taught(far, 1.0)][-2:] == [1.1, 4.7]


def test_what_neither_can_read_is_dropped_and_what_was_read_is_kept(
    tiny: Engine, book: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = BareModel("dummy:tiny-llama", "cpu", "float32")
    judge = PointwiseJudge(tiny, parse_aspects("coherence"), min_mass=0.0, journal=book)
    texts = [told("A b. C d."), told("E f. G h."), told("I j. K l.")]
    gain = BareModel.gain
    monkeypatch.setattr(BareModel, "gain", lambda self, parts: float("nan") if "E f." in parts else gain(self, parts))
    judged = judged_by(judge, [Marked(text) for text in texts])
    gained = gained_by(model, judged.kept, journal=book)
    assert len(judged.kept) == 3 and [one.text for one in gained.kept] == [texts[0], texts[2]]
    assert [drop.reason for drop in gained.dropped] == ["no_gain"]
    monkeypatch.setattr(BareModel, "gain", lambda *_: pytest.fail("asked twice"))
    again = gained_by(model, judged.kept, journal=book)
    assert again == gained and "gain" not in again.dropped[0].record
    assert [one.gains for one in gained_by(model, gained.kept, journal=book).kept] == [
        one.gains * 2 for one in gained.kept
    ]
    twice = judged_by(judge, judged.kept)
    assert [one.scores for one in twice.kept] == [one.scores * 2 for one in judged.kept]
    strict = PointwiseJudge(tiny, parse_aspects("coherence"), min_mass=1.0)
    assert {drop.reason for drop in judged_by(strict, judged.kept).dropped} == {"low_mass"}


def test_models_count_the_same_however_far_what_they_say_lies_apart() -> None:
    marks = [
        Marked(told(text), scores, (0.0,)) for text, scores in (("A.", (1, 2.7)), ("B.", (2, 2.8)), ("C.", (3, 2.6)))
    ]
    # -1.2247, 0, 1.2247 and 0, 1.2247, -1.2247: their means -0.6124, 0.6124, 0 are standardised again
    assert [one.score for one in taught(marks, 1.0)] == [2.68, 4.52, 3.6]
    both = [Marked(one.text, (3.0,), one.scores) for one in marks]
    assert [one.score for one in taught(both, 0.3)] == [2.68, 4.52, 3.6]


@pytest.fixture
def scripted(tiny: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The folders of the writers, each of which writes four sentences of its own, or two where it is asked for it."""
    opened: list[str] = []

    def engine(folder: str, _: Source) -> ScriptedEngine:
        opened.append(folder)
        mine = ScriptedEngine(
            tiny, lambda shown, before: "No. Never." if "silence" in shown else f"{STORY} It was {len(opened)} o'clock."
        )
        mine.fingerprint = resolve(folder).fingerprint
        mine.sleep = lambda: None  # type: ignore[attr-defined]
        return mine

    monkeypatch.setattr(command, "_engine", engine)
    yield opened


def test_stories_come_back_with_scored_ones_beside_them(
    tmp_path: Path, writer: ModelSource, scripted: list[str]
) -> None:
    prompts = ("A bus.", "A silence.", "A train \ud800.")
    rows = [{"id": str(number), "prompt": prompt, "text": STORY} for number, prompt in enumerate(prompts)]
    stories = tmp_path / "stories.jsonl"
    old = {"scored": [{"text": "Old.", "score": 1.5}, {"text": "Older.", "score": 1.2}]}
    stories.write_text("".join(json.dumps({**row, **old}) + "\n" for row in rows))
    asked = ["train", "teacher", str(stories), "--writer", writer.path, "--model", "dummy:tiny-llama"]
    asked += ["--bare", "dummy:tiny-llama", "--noise", "0", "--noise", "0.2", "--max-tokens", "40"]

    def run(*more: str) -> str:
        result = CliRunner().invoke(app, [*asked, *more], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    said = run()
    output = tmp_path / "stories.scored.jsonl"
    found = read_lines(output)
    rows[2]["prompt"] = "A train \ufffd."
    assert [{name: row[name] for name in ("id", "prompt", "text")} for row in found] == rows
    assert ["scored" in row for row in found] == [True, False, True] and scripted[0] == writer.path != scripted[1]
    assert {one["text"][-10:] for row in found for one in row.get("scored", [])} == {"1 o'clock.", "2 o'clock."}
    assert "too_short 2" in said and "300" not in said and f"scored: {output}" in said
    mean_scores = [line.split() for line in said.partition("Mean scores")[2].splitlines()[1:4]]
    assert [line[:2] for line in mean_scores] == [["noise", "texts"], ["0", "2"], ["0.2", "2"]]
    assert len((tmp_path / "stories.scored.dropped.jsonl").read_text().splitlines()) == 2
    read = stories_of([TextFile(str(output))]).texts
    assert [len(story.beside.scored) for story in read] == [2, 0, 2]

    output.unlink()
    run("--resume")
    assert read_lines(output) == found

    scripted.clear()
    run("--overwrite", "--also", writer.path)
    assert len(scripted) == 3 and scripted[0] == scripted[2] == writer.path  # the last one judges

    stories.write_text(json.dumps(rows[1]))
    assert f"nothing in {output} is scored" in run("--overwrite")
    assert read_lines(output) == [rows[1]]


def test_without_a_writer_the_texts_that_were_scored_are_scored_anew_as_they_are(
    tmp_path: Path, writer: ModelSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    stories, output = tmp_path / "stories.jsonl", tmp_path / "again.jsonl"
    others = [
        "Of course, the bus was late.\nAh. Mr. Ito waited",
        "Rain fell on the town. Nobody came. Why did it rain?",
    ]
    scored = {"scored": [{"text": text, "score": 1.5} for text in others]}
    rows = [{"prompt": "A bus.", "text": STORY, **scored}, {"prompt": "A train.", "text": STORY}]
    write_lines(stories, *rows)
    asked = ["train", "teacher", str(stories), "--model", "dummy:tiny-llama", "-o", str(output)]
    asked += ["--bare", "dummy:tiny-llama", "--bare", writer.path, "--gain", "0"]
    said = CliRunner().invoke(app, asked, catch_exceptions=False).output
    found = read_lines(output)
    assert found[1] == rows[1] and [one["text"] for one in found[0]["scored"]] == others, said
    engine = Engine("dummy:tiny-llama", device="cpu", dtype="float32")
    first, second = PointwiseJudge(engine, parse_aspects("coherence")).judge(Item("A bus.", text) for text in others)
    better = (first.score or 0) > (second.score or 0)
    assert [one["score"] for one in found[0]["scored"]] == ([4.35, 2.85] if better else [2.85, 4.35])

    with monkeypatch.context() as patch:  # the judge alone: no bare model is opened
        patch.setattr(command, "BareModel", lambda *_: pytest.fail("a bare model was opened"))
        absent = [*asked, "--bare", "no-such-model", "--overwrite"]
        assert CliRunner().invoke(app, absent, catch_exceptions=False).exit_code == 0
    assert read_lines(output) == found

    def gain(self: BareModel, parts: tuple[str, ...]) -> float:
        assert parts[0] == "A bus." and parts[1] in ("Of course, the bus was late.", "Rain fell on the town.")
        return (1.0 if self.name == writer.path else 0.25) * (parts[1] == "Rain fell on the town.")

    monkeypatch.setattr(BareModel, "gain", gain)
    # the two readers' means, not standardised, stand in the table
    for readers, mean in ((asked, "0.312"), (asked[:-4], "0.125")):
        said = CliRunner().invoke(app, [*readers, "--gain", "9", "--overwrite"], catch_exceptions=False).output
        assert mean in said
        found = read_lines(output)
        assert [one["score"] for one in found[0]["scored"]] == [2.85, 4.35]

    monkeypatch.setattr(Source, "open", lambda self: pytest.fail("a model was opened"))
    kept = output.read_bytes()
    for row, mend in (
        (rows[1], 'no row has texts in "scored": name a --writer'),
        ({**rows[0], "scored": scored["scored"][:1]}, '"scored" a list of two or more'),
    ):
        stories.write_text(json.dumps(row))
        with pytest.raises(AdjudgeError, match=mend):
            CliRunner().invoke(app, [*asked, "--overwrite"], catch_exceptions=False)
    with pytest.raises(AdjudgeError, match="--noise is put on the writer's weights"):
        CliRunner().invoke(app, [*asked, "--noise", "0.1"], catch_exceptions=False)
    assert output.read_bytes() == kept


def test_texts_of_which_a_server_judged_nothing_are_not_written_and_are_judged_once_it_answers(
    tmp_path: Path, tiny: Engine
) -> None:
    stories, output = tmp_path / "stories.jsonl", tmp_path / "again.jsonl"
    scored = [{"text": text, "score": 1.5} for text in ("It was late.", "Rain fell.")]
    write_lines(stories, {"prompt": "A bus.", "text": STORY, "scored": scored})
    peer = Peer("adjudge", tiny)
    peer.script.append(says(500))
    asked = ["train", "teacher", str(stories), "-o", str(output), "--gain", "0", "--url", peer.url, "--retries", "0"]
    try:
        with pytest.raises(AdjudgeError, match="nothing was answered"):
            CliRunner().invoke(app, asked, catch_exceptions=False)
        assert not output.exists()
        assert CliRunner().invoke(app, [*asked, "--resume"], catch_exceptions=False).exit_code == 0
    finally:
        peer.close()
    assert [one["text"] for one in read_lines(output)[0]["scored"]] == [one["text"] for one in scored]


@pytest.mark.parametrize(
    ("more", "mend"),
    [
        (["--noise", "0"], "give --noise twice to 26 times"),
        (["--noise", "0.1", "--noise", "0.1"], "each time another number"),
        (["--noise", "0", "--noise", "-1"], "from 0 to 1"),
        (["--noise", "0", "--noise", "nan"], "from 0 to 1"),
        (["--gain", "inf"], "--gain is inf"),
        (["--bare", "no-such-bare"], "no-such-bare"),
        (["--writer", "dummy:tiny-llama"], "no .*safetensors to put noise on"),
        (["--also", "no-such-judge"], "no-such-judge"),
        (["--aspects", "wits"], 'unknown aspect "wits"'),
        (["--writer", "no-such-model"], "no-such-model"),
        (["--writer", ""], "there is no model ''"),
    ],
)
def test_mistakes_are_found_before_a_model_is_loaded(
    tmp_path: Path, writer: ModelSource, more: list[str], mend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stories = tmp_path / "stories.jsonl"
    stories.write_text(json.dumps({"prompt": "A bus.", "text": STORY}))
    monkeypatch.setattr(Source, "open", lambda self: pytest.fail("a model was opened"))
    with pytest.raises(AdjudgeError, match=mend):
        CliRunner().invoke(
            app, ["train", "teacher", str(stories), "--writer", writer.path, *more], catch_exceptions=False
        )


@pytest.mark.parametrize("option", ["--max-tokens", "--temperature", "--attempts", "--seed"])
def test_how_texts_are_written_is_refused_where_none_are(tmp_path: Path, option: str) -> None:
    asked = ["train", "teacher", str(tmp_path / "stories.jsonl"), option, "7"]
    with pytest.raises(AdjudgeError, match="is the writer's matter: name one with --writer, or leave it out"):
        CliRunner().invoke(app, asked, catch_exceptions=False)


def test_a_story_without_a_first_sentence_is_named(tmp_path: Path, writer: ModelSource) -> None:
    stories = tmp_path / "stories.jsonl"
    for row, mend in (
        ({"text": STORY}, '"prompt" is missing'),
        ({"prompt": 3, "text": STORY}, '"prompt" is 3, not a'),
        ({"prompt": "  ", "text": STORY}, "its prompt or its text is blank"),
    ):
        stories.write_text(json.dumps(row))
        with pytest.raises(AdjudgeError, match=mend):
            CliRunner().invoke(app, ["train", "teacher", str(stories), "--writer", writer.path], catch_exceptions=False)
