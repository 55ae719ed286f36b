"""Every public format, in small files of our own writing, and the mistakes that are found in them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adjudge.bench.agreement.dataset import drawn, judged_row
from adjudge.bench.agreement.formats import FORMATS, load
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.judges.kinds import KINDS, prepare
from adjudge.rewards.records.rows import Row
from tests.jsonl import write_lines

DATA = Path(__file__).parents[3].parent / "shared" / "data"
HANNA_ROW = {"Story ID": 0, "Prompt": "A ship.", "Human": "h", "Story": "It sank.", "Model": "GPT"} | dict.fromkeys(
    ("Relevance", "Coherence", "Empathy", "Surprise", "Engagement", "Complexity"), 3
)
PLOTS = "[The Start of Plot A]\n{}\n[The End of Plot A]\n[The Start of Plot B]\n{}\n[The End of Plot B]\n"


def table(path: Path, *rows: dict[str, Any]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_hannas_table_has_a_row_for_each_rater(tmp_path: Path) -> None:
    second = {"Story ID": 1, "Story": "It swam.<newline>Home.", "Model": "CTRL"}
    path = table(
        tmp_path / "h.csv", HANNA_ROW, HANNA_ROW | {"Relevance": 5}, HANNA_ROW | second, HANNA_ROW | {"Empathy": 1}
    )
    dataset = load([path])
    assert (dataset.name, dataset.what, dataset.scale, dataset.aspects) == ("hanna", "items", (1, 5), "hanna")
    first, other = dataset.rows
    assert (first.item.prompt, first.item.response, first.system) == ("A ship.", "It sank.", "GPT")
    assert first.scores["relevance"] == (3, 5, 3) and first.scores["empathy"] == (3, 3, 1)
    assert first.overall == pytest.approx((11 / 3 + 3 + 7 / 3 + 3 * 3) / 6)
    assert other.item.response == "It swam.\nHome." and first.cluster == other.cluster == "A ship."
    for column in ("Prompt", "Story", "Model"):
        with pytest.raises(AdjudgeError, match=f'story 0 has another "{column}" than in'):
            load([table(tmp_path / "twice.csv", HANNA_ROW, HANNA_ROW | {column: "Another."})])


def test_hanna_as_lines_has_lists_of_ratings(tmp_path: Path) -> None:
    row = {"story_id": 7, "prompt": "A ship.", "story": "It sank.", "ratings": {"Relevance": [5, 4], "Empathy": 2}}
    (found,) = load([write_lines(tmp_path / "h.jsonl", row)]).rows
    assert found.scores == {"relevance": (5, 4), "empathy": (2,)} and found.id == "7"


def test_openmeva_has_several_systems_for_a_prompt(tmp_path: Path) -> None:
    gen = {"s2s": {"text": "He ran.", "score": [1, 2, 3, 3, 1]}, "gpt": {"text": "He sat.", "score": [4, 4, 5, 5, 4]}}
    path = tmp_path / "mans_roc.json"
    path.write_text(json.dumps({"0": {"prompt": "Tom woke.", "gen": gen, "gold_response": "x"}}, indent=1))
    first, second = load([path]).rows
    assert (first.id, first.system, first.overall, second.overall) == ("0/s2s", "s2s", 2.0, 4.4)
    lined = write_lines(
        tmp_path / "o.jsonl", {"doc": 0, "prompt": "Tom woke.", "system": "s2s", "story": "He ran.", "human": 2.0}
    )
    (same,) = load([lined]).rows
    assert (same.item, same.overall, same.cluster) == (first.item, 2.0, first.cluster)


def test_without_a_cluster_of_its_own_a_row_is_drawn_with_its_prompt(tmp_path: Path) -> None:
    about = {"response": "It swam.", "scores": 3}
    rows = [{"prompt": "A", "cluster": None}, {"prompt": "B", "cluster": ""}, {"prompt": "C", "cluster": 7}]
    found = load([write_lines(tmp_path / "r.jsonl", *({**row, **about} for row in rows))]).rows
    assert [row.cluster for row in found] == ["A", "B", "7"]


def test_storyer_drops_padding_and_names_aspects(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(
        '{"prompt": "[WP] A ship", "story": "It<br>sank.", "score": 12.0,'
        ' "comments": [[3, 2.5, "abrupt"], [4, 5, "alive"], [3, 4, "fine"], [-1, -1, NaN]]}\n'
        '{"prompt": "p", "story": "s", "score": 1.0, "comments": [[-1, -1, NaN]]}\n'
    )
    dataset = load([path])
    (row,) = dataset.rows
    assert dataset.unrated == 1
    assert row.scores == {"ending": (2.5, 4), "character development": (5,)} and row.item.response == "It\nsank."


def test_per_mpst_foretells_a_readers_last_review(tmp_path: Path) -> None:
    reviews = [
        {"reviewer_name": "ann", "summ_plot": f"Plot {n}", "clean_review": f"Well {n}", "score": n} for n in (3, 8)
    ]
    dataset = load([write_lines(tmp_path / "m.jsonl", {"examples": reviews})])
    (row,) = dataset.rows
    assert (row.overall, row.cluster, row.item.response, dataset.scale) == (8, "ann", "Plot 8", (1, 10))
    assert judged_row(row)["reviews"][0]["plot"] == "Plot 3"
    renamed = write_lines(tmp_path / "n.jsonl", {"said": reviews})
    assert load([renamed], columns={"examples": "said"}).rows[0].item == row.item


def test_per_doc_has_an_aspect_and_a_reader(tmp_path: Path) -> None:
    prompt = PLOTS.format("old a", "old b") + '{"Choice": "Plot B"}' + PLOTS.format("new a", "new b")
    row = {"idx": 1, "review_id": "R7", "prompt": [prompt], "completion": '{"Choice": "Plot A"}'}
    dataset = load([write_lines(tmp_path / "PerDOC.S.x.jsonl", row)])
    (found,) = dataset.rows
    assert (dataset.name, dataset.aspects, found.aspect, found.cluster) == ("per-doc", "perse", "surprise", "R7")
    assert (found.pair.a, found.preferred, found.pair.reviews[0].preferred) == ("new a", 1.0, "b")
    other = {"said" if name == "completion" else name: value for name, value in row.items()}
    (same,) = load([write_lines(tmp_path / "PerDOC.S.y.jsonl", other)], columns={"completion": "said"}).rows
    assert same.pair == found.pair


def test_rows_go_by_their_own_ids_and_numbers_of_several_files_do_not_collide(tmp_path: Path) -> None:
    pair = {"prompt": "p", "response 1": "a", "response 2": "b", "label": 0}
    plots = {"review_id": "R7", "prompt": PLOTS.format("a", "b"), "completion": '{"Choice": "Plot A"}'}
    review = {"reviewer_name": "ann", "summ_plot": "Plot", "clean_review": "Well", "score": 3}
    kinds = {"autoj": pair, "PerDOC.I.x": plots, "PerDOC.S.x": plots, "mpst": {"examples": [review]}}
    for name, row in kinds.items():
        first, second = (write_lines(tmp_path / f"{name}.{n}.jsonl", row, row | {"id": "7"}) for n in (1, 2))
        assert [one.id for one in load([first]).rows] == ["1", "7"]
        both = load([first, write_lines(second, row, row | {"id": "8"})])
        assert [one.id for one in both.rows] == [f"{first}:1", "7", f"{second}:1", "8"]
        with pytest.raises(AdjudgeError, match='has the id "7" of line 2 of'):
            load([first, write_lines(second, row, row | {"id": "7"})])


def test_howtobench_has_published_scores_of_systems(tmp_path: Path) -> None:
    row = {"id": "i1", "task": "open", "genre": "prose", "instruction": "Write.", "information": "", "reference": "R."}
    path = write_lines(tmp_path / "o.jsonl", row | {"outputs": {"deepseek-r1": "long " * 9, "glm-4-plus-250111": "b"}})
    first, second = load([path], characters=10).rows
    assert (first.published, second.published, first.scores, first.cluster) == (6.06, 5.28, {}, "i1")
    assert first.item.task == "open" and "…" in first.item.response and first.overall is None


def test_writingbench_joins_requests_and_responses(tmp_path: Path) -> None:
    levels = {"1-2": "no", "3-4": "little", "5-6": "some", "7-8": "much", "9-10": "all"}
    checklist = [{"name": "Fit", "criteria_description": "Does it fit?", **levels}]
    requests = write_lines(tmp_path / "requests.jsonl", {"index": 4, "query": "Write it.", "checklist": checklist})
    responses = write_lines(
        tmp_path / "model.jsonl", {"index": 4, "response": "Written.", "model": "m", "score": [7, 8]}
    )
    dataset = load([requests, responses])
    (row,) = dataset.rows
    assert (row.item.prompt, row.item.response, row.overall, dataset.scale) == ("Write it.", "Written.", 7.5, (1, 10))
    assert KINDS["rubric"].subject(Row("here", judged_row(row)), 1).rubric.criteria[0].name == "Fit"
    with pytest.raises(AdjudgeError, match="requests and no responses: name a file"):
        load([requests])
    again = write_lines(tmp_path / "again.jsonl", *({"index": 4, "query": query, "checklist": []} for query in "ab"))
    with pytest.raises(AdjudgeError, match="line 2 of again.jsonl: its index 4 is that of line 1 of again.jsonl too"):
        load([again, responses])
    write_lines(responses, {"index": 5, "response": "Written."})
    with pytest.raises(AdjudgeError, match=r"line 1 of model.jsonl: no request has the index 5"):
        load([requests, responses])


def test_a_response_of_writingbench_may_answer_a_request_of_any_file(tmp_path: Path) -> None:
    asked = [write_lines(tmp_path / f"{n}.jsonl", {"index": n, "query": f"Write {n}."}) for n in (1, 2)]
    answers = [{"index": n, "response": f"Written {n}.", "score": n} for n in (2, 1)]
    read = load([*asked, write_lines(tmp_path / "model.jsonl", *answers)])
    assert [(row.id, row.item.prompt, row.item.response) for row in read.rows] == [
        ("1", "Write 2.", "Written 2."),
        ("2", "Write 1.", "Written 1."),
    ]
    with pytest.raises(AdjudgeError, match="line 1 of 2.jsonl: its index 1 is that of line 1 of 1.jsonl too"):
        load([asked[0], write_lines(asked[1], {"index": 1, "query": "Another."})])


def test_texts_with_an_index_are_no_responses_where_no_file_has_requests(tmp_path: Path) -> None:
    good, bad = (
        write_lines(tmp_path / f"{label}.jsonl", {"index": 1, "prompt": "p", "response": f"r{label}", "label": label})
        for label in (1, 0)
    )
    assert [row.overall for row in load([good, bad]).rows] == [1.0, 0.0]
    with pytest.raises(AdjudgeError, match="which are those of no known data set"):
        load([write_lines(path, {"index": 1, "response": "r"}) for path in (good, bad)])


def test_autoj_labels_are_the_first_the_second_and_a_tie(tmp_path: Path) -> None:
    row = {"scenario": "chitchat", "prompt": "Hi", "response 1": "A", "response 2": "B"}
    path = write_lines(tmp_path / "a.jsonl", *(row | {"label": label} for label in (0, 1, 2)))
    dataset = load([path])
    assert [found.preferred for found in dataset.rows] == [1.0, 0.0, 0.5]
    assert {found.group for found in dataset.rows} == {"chitchat"} and len(set(dataset.clusters)) == 1


def test_mt_bench_votes_on_one_pair_are_one_row(tmp_path: Path) -> None:
    turns = [("user", "Q1"), ("assistant", "{}1"), ("user", "Q2"), ("assistant", "{}2")]

    def talk(name: str) -> list[dict[str, str]]:
        return [{"role": role, "content": content.format(name)} for role, content in turns]

    def vote(winner: str, turn: int) -> dict[str, Any]:
        row = {"question_id": 81, "model_a": "x", "model_b": "y", "winner": winner, "judge": "j", "turn": turn}
        return row | {"conversation_a": talk("A"), "conversation_b": talk("B")}

    votes = (vote("model_a", 1), vote("tie (inconsistent)", 1), vote("model_b", 2))
    first, second = load([write_lines(tmp_path / "m.jsonl", *votes)]).rows
    assert (first.preferred, first.pair.prompts, first.pair.a, first.pair.b) == (0.75, ("Q1", "Q1"), "A1", "B1")
    assert (second.preferred, second.pair.b, second.group, second.cluster) == (0.0, "B2", "turn 2", "81")
    assert second.pair.prompts[1] == "user: Q1\n\nassistant: B1\n\nuser: Q2"
    turned = vote("model_a", 1) | {"model_a": "y", "model_b": "x", "conversation_a": talk("B")}
    (both,) = load([write_lines(tmp_path / "t.jsonl", turned | {"conversation_b": talk("A")}, vote("model_b", 1))]).rows
    assert (both.preferred, both.pair.a, both.pair.b, both.id) == (0.0, "A1", "B1", "81/x/y/1")


def test_preferences_stand_in_either_place_and_may_be_conversations(tmp_path: Path) -> None:
    rows = [{"prompt": f"P{n}", "chosen": f"good {n}", "rejected": f"bad {n}", "subset": "s"} for n in range(20)]
    found = load([write_lines(tmp_path / "p.jsonl", *rows)]).rows
    assert {row.preferred for row in found} == {0.0, 1.0} and {row.group for row in found} == {"s"}
    assert all((row.pair.a if row.preferred else row.pair.b).startswith("good") for row in found)
    bare = [{"id": n, "chosen": "good", "rejected": f"bad {n}"} for n in range(3)]
    alone = load([write_lines(tmp_path / "b.jsonl", *bare)])
    assert [row.id for row in alone.rows] == ["0", "1", "2"] and len(set(alone.clusters)) == 3
    asked = {"role": "user", "content": "Q"}
    sides = {name: [asked, {"role": "assistant", "content": name}] for name in ("chosen", "rejected")}
    (talk,) = load([write_lines(tmp_path / "t.jsonl", sides)]).rows
    assert talk.pair.prompt == "Q" and {talk.pair.a, talk.pair.b} == {"chosen", "rejected"}


def test_rows_without_an_id_are_numbered_also_where_a_table_has_the_column(tmp_path: Path) -> None:
    rows = [{"id": name, "prompt": "P", "response": "R", "scores": 3} for name in (0, None, "")]
    assert [row.id for row in load([write_lines(tmp_path / "r.jsonl", *rows)]).rows] == ["0", "2", "3"]


def test_rows_without_a_prompt_are_drawn_one_by_one(tmp_path: Path) -> None:
    for name, row in (
        ("expected", {"story_a": "A", "story_b": "B", "expected": "a"}),
        ("scores", {"response": "R", "scores": 3}),
        ("label", {"response": "R", "label": 1}),
    ):
        found = load([write_lines(tmp_path / f"{name}.jsonl", *[{"prompt": "", **row}] * 6)])
        assert len({one.cluster for one in found.rows}) == 6 and len(drawn(found, 3).rows) == 3


def test_our_own_rows_and_labels_are_read_and_a_scale_may_be_given(tmp_path: Path) -> None:
    own = write_lines(tmp_path / "o.jsonl", {"prompt": "P", "response": "R", "scores": {"Wit": [7, 9]}, "id": "x"})
    (row,) = load([own], scale=(1, 10)).rows
    assert row.scores == {"wit": (7, 9)}
    with pytest.raises(AdjudgeError, match="--characters is for HoWToBench, and o.jsonl is of another format"):
        load([own], characters=9)
    pairs = write_lines(tmp_path / "p.jsonl", {"prompt": "P", "story_a": "A", "story_b": "B", "expected": "a"})
    with pytest.raises(AdjudgeError, match="--scale is of scores, and p.jsonl has pairs: leave it out"):
        load([pairs], scale=(1, 10))
    with pytest.raises(AdjudgeError, match=r'line 1 of o.jsonl: "wit" is 7, outside the scale of o, 1 to 5'):
        load([own])
    labelled = load([write_lines(tmp_path / "l.jsonl", {"query": "Q", "response": "R", "label": 1})])
    assert labelled.scale == (0, 1) and labelled.rows[0].overall == 1
    pairs = load(
        [write_lines(tmp_path / "e.jsonl", {"prompt": "P", "story_a": "A", "story_b": "B", "expected": "tie"})]
    )
    assert pairs.rows[0].preferred == 0.5


def test_scores_of_which_the_lowest_is_the_best_are_turned_round(tmp_path: Path) -> None:
    rows = [{"prompt": "p", "response": f"r{n}", "scores": {"style": [n, 6]}} for n in (1, 2, 6)]
    write_lines(tmp_path / "grades.jsonl", *rows)
    found = load([tmp_path / "grades.jsonl"], scale=(6.0, 1.0))
    assert found.scale == (1.0, 6.0)
    assert [row.scores for row in found.rows] == [{"style": (6, 1)}, {"style": (5, 1)}, {"style": (1, 1)}]
    with pytest.raises(AdjudgeError, match='"style" is 6, outside the scale of grades, 1 to 5'):
        load([tmp_path / "grades.jsonl"], scale=(5.0, 1.0))


def test_scores_by_aspect_may_stand_in_a_cell_of_a_table(tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_text('prompt,response,scores\nP,R,"{""wit"": 3, ""end"": [2, 4]}"\nP,R,3\nP,R,[1]\n')
    rows = load([tmp_path / "o.csv"]).rows
    assert [row.scores for row in rows] == [{"wit": (3,), "end": (2, 4)}, {"overall": (3,)}, {"overall": (1,)}]


@pytest.mark.parametrize(
    ("row", "name", "nothing"),
    [
        ({"prompt": "p", "response": "r", "scores": 3}, "scores", [None, "", [None], {"wit": None}, {"wit": [None]}]),
        ({"prompt": "p", "response": "r", "label": 1}, "label", [None, ""]),
        ({"prompt": "p", "story_a": "r", "story_b": "s", "expected": "a"}, "expected", [None, ""]),
    ],
)
def test_rows_of_ones_own_that_nobody_rated_are_left_out_and_counted(
    tmp_path: Path, row: dict[str, Any], name: str, nothing: list[Any]
) -> None:
    rows = [{**row, "id": f"n{number}", name: value} for number, value in enumerate(nothing)]
    rows += [{column: value for column, value in row.items() if column != name} | {"id": "without"}]
    for order in ((rows[-1], {**row, "id": "rated"}, *rows[:-1]), ({**row, "id": "rated"}, *rows)):
        dataset = load([write_lines(tmp_path / "r.jsonl", *order)])
        assert [one.id for one in dataset.rows] == ["rated"] and dataset.unrated == len(rows)
    with pytest.raises(AdjudgeError, match="no text that people have judged"):
        load([write_lines(tmp_path / "r.jsonl", *rows)])


def test_a_rater_or_an_aspect_that_is_missing_takes_no_other_with_it(tmp_path: Path) -> None:
    scores = [{"wit": [4, None, 2], "ending": None}, [5, None]]
    rows = [{"prompt": "p", "response": "r", "scores": value} for value in scores]
    first, second = load([write_lines(tmp_path / "r.jsonl", *rows)]).rows
    assert first.scores == {"wit": (4, 2)} and second.scores == {"overall": (5,)}
    same, also = load([table(tmp_path / "r.csv", *({**row, "scores": json.dumps(row["scores"])} for row in rows))]).rows
    assert (same.scores, also.scores) == (first.scores, second.scores)


def test_a_row_of_ones_own_keeps_its_columns_but_for_what_people_said(tmp_path: Path) -> None:
    review = {"plot": "A plot.", "review": None, "score": 3}
    further = {"level": None, "tone": {"dry": 1}, "reviews": [review], "human": "me", "published": 5}
    rows = {"scores": {"scores": 3}, "labels": {"label": 1}}
    for name, rating in rows.items():
        path = write_lines(tmp_path / f"{name}.jsonl", {"prompt": "p", "response": "r", **rating, **further})
        line = judged_row(load([path]).rows[0])
        assert (line["level"], line["tone"], line["reviews"]) == (None, {"dry": 1}, [review])
        assert line["human"] == {"overall": (3,)} or line["human"] == {"overall": (1,)}
        assert not {"scores", "label", "published"} & line.keys()


def test_columns_of_other_names_are_those_of_a_format(tmp_path: Path) -> None:
    columns = {"prompt": "question", "response": "answer", "scores": "stars"}
    row = {"question": "p", "answer": "r", "stars": 4, "response": "an older one"}
    for path in (write_lines(tmp_path / "r.jsonl", row), table(tmp_path / "r.csv", row)):
        (found,) = load([path], columns=columns).rows
        assert (found.item.prompt, found.item.response, found.overall) == ("p", "r", 4)
    (tmp_path / "r.json").write_text(json.dumps([row]))
    assert load([tmp_path / "r.json"], columns=columns).rows[0].item == found.item
    with pytest.raises(AdjudgeError, match='"grade" is missing .--columns takes it as scores.'):
        load([tmp_path / "r.json"], columns={"scores": "grade"})
    with pytest.raises(AdjudgeError, match="or say with --columns which are meant"):
        load([tmp_path / "r.json"])


@pytest.mark.parametrize("form", [lambda row: [row], lambda row: {"first": row}, lambda row: row])
def test_json_of_a_list_of_entries_or_of_one_row_is_read_and_can_be_written_again(tmp_path: Path, form: Any) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(form({"prompt": "p", "response": "a \ud800", "scores": 4}), indent=1))
    (row,) = load([path]).rows
    assert (row.item.response, row.overall) == ("a \ufffd", 4)


def test_a_list_of_json_is_read_and_refused_as_by_the_other_commands(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps([{"prompt": "p", "response": "a", "scores": 4}]), encoding="utf-16")
    assert [row.item.response for row in load([path]).rows] == ["a"]
    path.write_text('[{"prompt": "p",\n"response" "a"}]')
    with pytest.raises(AdjudgeError, match=r"^line 2 of r\.json is not JSON"):
        load([path])


def test_parquet_is_read_as_the_same_rows(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [
        {
            "prompt": "P",
            "chosen": [{"role": "assistant", "content": "good"}],
            "rejected": [{"role": "x", "content": "b"}],
        }
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "p.parquet")
    (row,) = load([tmp_path / "p.parquet"]).rows
    assert {row.pair.a, row.pair.b} == {"good", "b"} and row.place == "row 1 of p.parquet"


MT_ROW = {"question_id": 1, "model_a": "x", "model_b": "y", "conversation_a": [], "conversation_b": []}

MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    (
        "x.jsonl",
        {"wrong": 1},
        "line 1 of x.jsonl has the columns wrong, which are those of no known data set: in a file of your own",
    ),
    ("h.csv", HANNA_ROW | {"Empathy": "six"}, 'line 2 of h.csv: "Empathy" is "six", not a number'),
    ("h.csv", HANNA_ROW | {"Empathy": ""}, 'line 2 of h.csv: "Empathy" is missing'),
    ("h.csv", HANNA_ROW | {"Empathy": 6}, 'line 2 of h.csv: "empathy" is 6, outside the scale of hanna, 1 to 5'),
    ("r.jsonl", {"prompt": "P", "story": "S", "ratings": []}, '"ratings" is not an object of aspects'),
    ("r.jsonl", {"prompt": "P", "story": "S", "ratings": {"a": []}}, '"ratings.a" is an empty list'),
    ("r.jsonl", {"prompt": 3, "story": "S", "ratings": {"a": 1}}, '"prompt" is 3, not a string'),
    ("o.json", {"prompt": "P", "gen": {"x": {"score": 1}}}, '"gen.x.text" is missing'),
    ("s.jsonl", {"prompt": "P", "story": "S", "comments": [[11, 2, ""]]}, "on aspect 11: StoryER has 1 to 10"),
    ("s.jsonl", {"prompt": "P", "story": "S", "comments": [[-1, -1, ""]]}, "no text that people have judged"),
    ("a.jsonl", {"prompt": "P", "response 1": "A", "response 2": "B", "label": 3}, '"label" is 3: Auto-J has 0'),
    ("m.jsonl", MT_ROW | {"winner": "me"}, '"winner" is "me": MT-Bench has'),
    ("m.jsonl", MT_ROW | {"winner": "tie"}, '"conversation_a" is an empty list'),
    ("p.jsonl", {"chosen": [{"role": "x"}], "rejected": "b"}, 'a message of "chosen" is not'),
    ("p.jsonl", {"chosen": "a", "rejected": None}, '"rejected" is missing'),
    ("e.jsonl", {"prompt": "P", "response": "R", "scores": {}}, '"scores" is an empty object'),
    ("e.jsonl", {"prompt": "P", "response": "R", "scores": 10**400}, '"scores.overall" is 1000000000'),
    ("e.jsonl", {"prompt": "", "story_a": "", "story_b": "", "expected": "c"}, '"expected" is "c": write a, b or tie'),
]


@pytest.mark.parametrize(("name", "row", "reason"), MISTAKES)
def test_mistakes_name_the_place_and_the_mend(tmp_path: Path, name: str, row: dict[str, Any], reason: str) -> None:
    write = table if name.endswith(".csv") else write_lines
    with pytest.raises(AdjudgeError) as found:
        load([write(tmp_path / name, row)])
    assert reason in str(found.value)


def test_ids_that_stand_twice_and_files_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    rated = {"id": "x", "prompt": "P", "response": "R", "scores": 2}
    one, two = write_lines(tmp_path / "one.jsonl", rated), write_lines(tmp_path / "two.jsonl", rated)
    with pytest.raises(AdjudgeError, match='line 1 of two.jsonl has the id "x" of line 1 of one.jsonl'):
        load([one, two])
    pairs = write_lines(tmp_path / "p.jsonl", {"prompt": "P", "chosen": "a", "rejected": "b"})
    with pytest.raises(AdjudgeError, match="one and preferences do not go together"):
        load([one, pairs])
    with pytest.raises(AdjudgeError, match='no format is called "x": choose hanna, ratings'):
        load([one], named="x")
    with pytest.raises(AdjudgeError, match='"ratings" is missing|"story" is missing'):
        load([one], named="ratings")


def test_a_limit_draws_whole_prompts_and_a_smaller_one_is_part_of_a_larger(tmp_path: Path) -> None:
    rows = [{"prompt": f"P{n // 3}", "response": "R", "scores": 2} for n in range(30)]
    dataset = load([write_lines(tmp_path / "r.jsonl", *rows)])
    few, more, other = drawn(dataset, 3), drawn(dataset, 5), drawn(dataset, 3, seed=1)
    assert len(few.rows) == 9 and set(few.clusters) < set(more.clusters) and set(other.clusters) != set(few.clusters)
    shuffled = msgspec.structs.replace(dataset, rows=tuple(reversed(dataset.rows)))
    assert set(drawn(shuffled, 3).clusters) == set(few.clusters)
    assert drawn(dataset, None).rows == dataset.rows


def test_every_format_has_a_judge_that_can_read_its_rows() -> None:
    assert {one.what for one in FORMATS.values()} == {"items", "pairs"}
    for one in FORMATS.values():
        if one.aspects:
            prepare("pairwise", {"aspects": one.aspects})


@pytest.mark.parametrize(
    "name",
    [
        *("autoj_pairs/pairs.jsonl", "hanna/stories.jsonl", "openmeva_roc/stories.jsonl", "storyer/ratings.jsonl"),
        *("greetings/labels.jsonl", "greetings/pairs.jsonl"),
    ],
)
def test_the_real_sets_are_read(name: str) -> None:
    if not (path := DATA / name).exists():
        pytest.skip(f"{name} is not beside the project")
    assert load([path]).rows
