from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from adjudge.bench.disturbances import PASSAGES, Pairing, changes, outcomes_of
from adjudge.commands.bench_disturbances import bench_disturbances
from adjudge.engine.errors import AdjudgeError
from adjudge.training.house.disturbances import DISTURBANCES
from adjudge.training.house.hostile import HOSTILE
from adjudge.training.house.texts import Story
from tests.training.house.stories import OWN, own_stories


def test_every_story_is_changed_in_each_way_and_under_its_own_number() -> None:
    stories = own_stories()[:20]
    made = list(changes(stories, 2, 0))
    assert {one.kind for one in made} == {*DISTURBANCES, *PASSAGES, *HOSTILE, "verdict beside it", "other prompt"}
    assert len([one for one in made if one.what == "hostile"]) == 20 * (len(HOSTILE) + 1)
    for one in made:  # under its own prompt another text, or its own text under another
        same = one.text == " ".join(stories[one.story].sentences), one.prompt == stories[one.story].prompt
        assert same == ((True, False) if one.kind == "other prompt" else (False, True))
    assert made == list(changes(stories, 2, 0)) != list(changes(stories, 2, 1))


def test_a_kind_makes_the_same_of_a_story_whichever_others_are_asked_for() -> None:
    stories = own_stories()[:5]
    some = ("praise", "drift", "passages dropped", "verdict beside it")
    asked = list(changes(stories, 2, 0, some))
    assert {one.kind for one in asked} == set(some)
    assert {(o.kind, o.story): o.text for o in asked} == {
        (o.kind, o.story): o.text for o in changes(stories, 2, 0) if o.kind in some
    }


def test_what_is_lower_is_counted_by_kind_and_over_all() -> None:
    changed = [Pairing("made worse", kind, story, "", "") for kind in ("order", "cut") for story in (0, 1)]
    before, after = [0.5, 0.5], [0.4, 0.6, 0.1, None]
    found = {(one.what, one.kind): one for one in outcomes_of(changed, before, after)}
    assert [one.lower.value for one in found.values()] == [0.5, 1.0, 2 / 3]
    assert list(found) == [("made worse", "order"), ("made worse", "cut"), ("made worse", "all")]
    cut, whole = found["made worse", "cut"], found["made worse", "all"]
    assert (cut.before, cut.after, cut.abstained, whole.lower.rows) == (0.5, 0.1, 1, 3)
    assert whole.lower.clusters == 2 and whole.lower.interval is None
    [none, _] = outcomes_of(changed[:2], [None, 0.5], [0.4, None])
    assert (none.lower.value, none.before, none.after, none.abstained) == (None, None, None, 2)


def test_a_judge_is_measured_on_stories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "table.csv"
    bench_disturbances(
        OWN / "everyday.jsonl",
        model="dummy:tiny-llama",
        aspects="coherence",
        text="text",
        limit=2,
        sentences=4,
        output=output,
    )
    printed = capsys.readouterr().out
    assert "forced ending" in printed and "praise" in printed and "2 stories, 2 steps, dummy:tiny-llama" in printed
    lines = output.read_text().splitlines()
    assert lines[0].startswith("what,kind,texts,lower") and any(line.startswith("made worse,all") for line in lines)
    [first, *_] = csv.DictReader(lines)
    setting = {name: first[name] for name in ("model", "adapter", "aspects", "steps", "seed")}
    assert setting == {"model": "dummy:tiny-llama", "adapter": "", "aspects": "coherence", "steps": "2", "seed": "0"}


def test_the_table_is_written_though_nobody_reads_what_is_printed(tmp_path: Path, unread: None) -> None:
    output = tmp_path / "table.csv"
    asked: dict[str, Any] = {"aspects": "coherence", "text": "text", "kinds": "praise", "limit": 2}
    with pytest.raises(BrokenPipeError):
        bench_disturbances(OWN / "everyday.jsonl", model="dummy:tiny-llama", output=output, **asked)
    assert "hostile,praise" in output.read_text()


def test_a_journal_that_is_none_is_mended_by_another_output(tmp_path: Path) -> None:
    (tmp_path / "table.csv.journal").write_text("no journal")
    with pytest.raises(AdjudgeError, match=r"table.csv.journal as a journal .*: name another output with -o$"):
        bench_disturbances(
            OWN / "everyday.jsonl", model="dummy:tiny-llama", text="text", limit=2, output=tmp_path / "table.csv"
        )


def test_a_column_that_is_not_there_names_the_option() -> None:
    with pytest.raises(AdjudgeError, match=r'"story" is missing .*: its columns are .*"text".*; give --text COLUMN$'):
        bench_disturbances(OWN / "everyday.jsonl", model="no/such-model")


def test_an_unknown_kind_is_refused_before_the_model_is_opened() -> None:
    with pytest.raises(AdjudgeError, match='no disturbance is called "drfit": choose order, .*verdict beside it'):
        bench_disturbances(OWN / "everyday.jsonl", model="no/such-model", text="text", kinds="drfit")


def test_what_was_too_short_and_what_found_nothing_to_do_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["One came. Two left. All sat.", "One came by. Two left it. All sat down. None spoke.", "Too short."]
    path = tmp_path / "stories.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    bench_disturbances(path, model="dummy:tiny-llama", aspects="coherence", text="text", kinds="middle,people,praise")
    printed = capsys.readouterr().out
    assert f"1 text of {path} left out: too short" in printed
    assert "found nothing to do: middle in 1 stories, people in 2 stories" in printed


@pytest.mark.parametrize(
    "sentence", ["BOB CAME HOME AT NINE {}.", "그는 집으로 돌아왔다 {}."], ids=["capitals", "Korean"]
)
def test_a_script_without_small_letters_is_changed_all_the_same(sentence: str) -> None:
    sentences = tuple(sentence.replace("{}", word) for word in ("A", "B", "C", "D"))
    stories = [Story(number, "", sentences, (" ",) * 4) for number in range(2)]
    assert {one.kind for one in changes(stories, 1, 0) if one.what == "hostile"} == {*HOSTILE, "verdict beside it"}


def test_one_story_is_too_few() -> None:
    with pytest.raises(AdjudgeError, match="give at least two stories"):
        list(changes(own_stories()[:1], 1, 0))
