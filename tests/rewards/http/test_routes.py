from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from adjudge.engine import waiting
from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.batching.step import Request
from adjudge.engine.engine import Engine
from adjudge.engine.http import service as service_module
from adjudge.engine.sampling import Sampling
from adjudge.rewards.http import requests
from adjudge.rewards.http import routes as module
from adjudge.rewards.http.routes import judging
from adjudge.rewards.judges.aspects import HANNA, Aspect
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.judges.pointwise import PointwiseJudge, PointwisePairJudge
from adjudge.rewards.judges.scalar import ScalarJudge
from adjudge.rewards.records.verdict import Item, Pair, PairVerdict
from tests.engine.http.serving import (
    MODEL,
    PATIENCE,
    Endless,
    Served,
    error_of,
    raw_request,
    served,
    wait_until_busy,
    wait_until_idle,
)
from tests.engine.reward_models import save_two_adapters

WIT = Aspect("wit", "Is it funny?")
PAIR = {"prompt": "Tell one.", "story_a": "A story.", "story_b": "Another."}
ITEM = {"prompt": "Tell one.", "response": "A story."}
HUGE = {"criteria": [{"name": name, "text": "?", "points": 3, "weight": 1e308} for name in "ab"]}
MANY = {"criteria": [{"name": f"c{n}", "text": "?", "points": 3} for n in range(900)]}
GROUP = {"prompt": "Tell one.", "completions": ["One.", "Two."], "reference": "Zero."}
LOST = "\x00\ud800<|im_end|>"


@pytest.fixture(scope="module")
def site() -> Iterator[Served]:
    engine = AsyncEngine(Engine(MODEL))
    with served(engine, routes=[judging([WIT])]) as site:
        yield site
    engine.worker.close(drain=False)


def test_verdicts_are_the_judges_own(site: Served) -> None:
    face = site.engine.face
    body = {"pairs": [PAIR, {**PAIR, "id": "x", "story_a": LOST}], "aspects": "hanna"}
    response = site.post("/v1/judge", content=json.dumps(body))  # which writes the lone surrogate as an escape
    assert response.status_code == 200, response.text
    verdicts = msgspec.convert(response.json()["verdicts"], list[PairVerdict])
    pairs = [Pair("A story.", "Another.", "Tell one.", id="1"), Pair(LOST, "Another.", "Tell one.", id="x")]
    assert verdicts == PairwiseJudge(face, HANNA).compare(pairs) and response.json()["model"] == MODEL
    other = {"story_a": "a", "story_b": "b", "prompt_a": "p", "prompt_b": "q"}
    own: dict[str, Any] = {
        "aspects": [{"name": "plot", "definition": "Is there one?", "weight": 2}],
        "orders": "ab",
    }
    [verdict] = msgspec.convert(site.post("/v1/judge", {"pairs": [other], **own}).json()["verdicts"], list[PairVerdict])
    named = {"aspects": ["coherence*2", *own["aspects"]]}
    [mixed] = site.post("/v1/judge", {"items": [ITEM], "judge": "pointwise", **named}).json()["verdicts"]
    assert {name: part["weight"] for name, part in mixed["breakdown"].items()} == {"coherence": 2.0, "plot": 2.0}
    judge = PairwiseJudge(face, [Aspect("plot", "Is there one?", 2.0)], orders="ab")
    assert [verdict] == judge.compare([Pair("a", "b", prompt_a="p", prompt_b="q", id="1")])


def test_every_judge_of_texts_answers_over_http_as_here(site: Served) -> None:
    face = site.engine.face
    items = [{"prompt": "Tell one.", "response": f"Story {n}.", "genre": "tale"} for n in range(2)]
    own = {"criteria": [{"name": "plot", "text": "Is there one?", "points": 10}]}
    answer = site.post("/v1/judge", {"judge": "pointwise", "items": items}).json()["verdicts"]
    expected = PointwiseJudge(face, [WIT]).judge([Item("Tell one.", f"Story {n}.", id=str(n + 1)) for n in range(2)])
    assert [verdict["score"] for verdict in answer] == [verdict.score for verdict in expected]
    assert answer[0]["genre"] == "tale" and answer[0]["mass"] == expected[0].mass and "response" not in answer[0]
    [graded] = site.post(
        "/v1/judge", {"judge": "rubric", "items": [{**items[0], "rubric": own}], "min_mass": 0.0}
    ).json()["verdicts"]
    assert graded["breakdown"].keys() == {"plot"} and 0 <= graded["score"] <= 1
    for judge in ("tree", "principle"):
        body = {"judge": judge, "items": items, "min_mass": 0.0}
        assert all(verdict["score"] is not None for verdict in site.post("/v1/judge", body).json()["verdicts"]), judge


def test_a_judge_that_writes_first_is_told_how_long(site: Served) -> None:
    how = {"mode": "reasoned", "max_tokens": 4, "attempts": 1, "temperature": 0.0}
    [verdict] = site.post("/v1/judge", {"pairs": [PAIR], **how}).json()["verdicts"]
    assert verdict["abstained"] == "unparsable" and len(verdict["aspects"]["wit"]["analyses"]) == 2
    sampling = Sampling(max_tokens=4, temperature=0.0)
    judge = PairwiseJudge(site.engine.face, [WIT], mode="reasoned", sampling=sampling, attempts=1)
    expected = judge.compare([Pair("A story.", "Another.", "Tell one.", id="1")])
    assert msgspec.convert(verdict, PairVerdict) == expected[0]


def test_without_aspects_those_of_the_server_are_judged(site: Served) -> None:
    [verdict] = site.post("/v1/judge", {"pairs": [PAIR]}).json()["verdicts"]
    assert verdict["aspects"].keys() == {"wit"}


def test_a_reward_is_the_preference_over_the_reference(site: Served) -> None:
    answer = site.post("/v1/rewards", {"groups": [GROUP, {**GROUP, "completions": ["Three."]}]}).json()
    pairs = [Pair(completion, "Zero.", "Tell one.") for completion in ("One.", "Two.", "Three.")]
    expected = [verdict.preference for verdict in PairwiseJudge(site.engine.face, [WIT]).compare(pairs)]
    assert answer["rewards"] == answer["scores"] == expected and len(set(expected)) == 3
    assert answer["abstained"] == [None] * 3 and answer["extra_logs"]["abstained"] == [0.0] * 3


def test_rewards_in_openrlhfs_shape(site: Served) -> None:
    body = {"query": ["Tell one.One.", "Tell one.Two."], "prompts": ["Tell one."] * 2, "labels": ["Zero."] * 2}
    groups = site.post("/v1/rewards", {"groups": [GROUP]}).json()
    assert site.post("/v1/rewards", body).json() == groups
    marked = {**body, "query": ["<s>Tell one.One.<|im_end|></s>", "<s>Tell one.Two.</s><|im_end|>"]}
    assert site.post("/v1/rewards?ends=<|im_end|>&ends=</s>", marked).json() == groups
    long = "Tell one of a bus that was late and of a woman who waited for it in the rain."
    whole = site.post("/v1/rewards", {**body, "query": [f"{long} One.", f"{long} Two."], "prompts": [long] * 2}).json()
    cut = {**body, "query": [f"{long[20:]} One.", f"{long[9:]} Two."], "prompts": [long] * 2}
    assert site.post("/v1/rewards", cut).json() == whole


def test_rewards_are_of_the_judge_that_the_model_was_trained_to_be() -> None:
    opened = Engine(MODEL)
    opened.name = "house"
    engine = AsyncEngine(opened)
    with served(engine, routes=[judging([WIT])]) as site:
        alone = site.post("/v1/rewards", {"groups": [GROUP]}).json()["rewards"]
        beside = site.post("/v1/rewards", {"groups": [GROUP], "orders": "both"}).json()["rewards"]
        pairs = [Pair(completion, "Zero.", "Tell one.") for completion in GROUP["completions"]]
        for judge, found in ((PointwisePairJudge, alone), (PairwiseJudge, beside)):
            assert found == [verdict.preference for verdict in judge(site.engine.face, [WIT]).compare(pairs)]
    engine.worker.close(drain=False)


def test_the_house_judge_is_not_asked_to_write_over_http() -> None:
    opened = Engine(MODEL)
    opened.name = "house"
    engine = AsyncEngine(opened)
    with served(engine, routes=[judging([WIT])]) as site:
        response = site.post("/v1/judge", {"items": [ITEM], "judge": "pointwise", "mode": "reasoned"})
        assert response.status_code == 400 and "not to write" in error_of(response)["message"]
    engine.worker.close(drain=False)


def test_the_head_of_an_adapter_is_read_over_http_whatever_the_model_is_called(tmp_path: Path) -> None:
    save_two_adapters(tmp_path)
    opened = Engine(str(tmp_path / "base"), adapter=tmp_path / "old")
    opened.name = "smollm2-135m"
    engine = AsyncEngine(opened)
    with served(engine, routes=[judging([WIT])]) as site:
        [verdict] = site.post("/v1/judge", {"items": [ITEM], "judge": "scalar"}).json()["verdicts"]
        assert verdict["score"] == ScalarJudge(site.engine.face).judge([Item("Tell one.", "A story.")])[0].score
    engine.worker.close(drain=False)


def test_an_abstention_is_null_unless_the_client_says_what_else(site: Served) -> None:
    body = {"groups": [GROUP], "timeout": 1e-9}
    answer = site.post("/v1/rewards", body).json()
    assert answer["rewards"] == answer["scores"] == [None, None]
    assert answer["abstained"] == ["timeout", "timeout"] and answer["extra_logs"]["abstained"] == [1.0, 1.0]
    filled = site.post("/v1/rewards?fill=0.5", body).json()
    assert filled["rewards"] == filled["scores"] == [0.5, 0.5] and filled["abstained"] == answer["abstained"]
    assert all(isinstance(value, float) for values in filled["extra_logs"].values() for value in values)


def test_who_abstains_has_the_mean_of_its_group_and_who_is_left_alone_in_a_group_has_nothing(
    site: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare(self: Any, pairs: list[Pair], window: int) -> list[PairVerdict]:
        whole = judge_iter(self, pairs, window)
        return [one if "kept" in pair.a else abstained(one) for one, pair in zip(whole, pairs, strict=True)]

    def abstained(one: PairVerdict) -> PairVerdict:
        return msgspec.structs.replace(one, preference=None, abstained="low_mass")

    judge_iter = PairwiseJudge.judge_iter
    monkeypatch.setattr(PairwiseJudge, "judge_iter", compare)
    groups = [{**GROUP, "completions": texts} for texts in (["kept.", "lost.", "kept, too."], ["kept.", "lost."])]
    whole, alone = ((0, 1, 2), (3, 4))
    sent = [(text, group["prompt"]) for group in groups for text in group["completions"]]
    posted = {"query": ["".join((prompt, text)) for text, prompt in sent], "prompts": [prompt for _, prompt in sent]}
    answer = site.post("/v1/rewards", {"groups": groups}).json()
    told = answer["rewards"]
    assert answer["abstained"] == [None, "low_mass", None, "too_few", "low_mass"]
    assert answer["extra_logs"]["abstained"] == [0.0, 1.0, 0.0, 1.0, 1.0]
    assert [told[place] is None for place in (*whole, *alone)] == [False, True, False, True, True]
    filled = site.post("/v1/rewards?fill=0.25", {"groups": groups}).json()["rewards"]
    assert filled[1] == pytest.approx((told[0] + told[2]) / 2) and filled[3] == filled[4] == pytest.approx(
        told[0], rel=1e-3
    )
    labels = ["Zero."] * 3 + ["Nought."] * 2  # what tells the two groups of a prompt apart
    assert [one is None for one in site.post("/v1/rewards", {**posted, "labels": labels}).json()["rewards"]] == [
        *(False, True, False, True, True)
    ]


@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [
        ("judge", {"pairs": [PAIR, {"prompt": "p", "story_a": "a"}]}, "pairs[1]", 'pairs[1]: "story_b" is missing'),
        ("judge", {"pairs": [{"prompt": "p", "a": "x"}], "judge": "pointwise"}, "pairs[0]", '"story_a" is missing'),
        ("judge", {"pairs": [{**PAIR, "story_a": 5}]}, "pairs[0]", '"story_a" is 5, not a string'),
        ("judge", {"pairs": [{"story_a": "a", "story_b": "b"}]}, "pairs[0]", '"prompt" is missing'),
        ("judge", {"pairs": ["a"]}, "pairs[0]", "expected `object`"),
        ("judge", {"pairs": []}, "pairs", "empty"),
        ("judge", {"pairs": [PAIR], "aspects": "beauty"}, "aspects", 'unknown aspect "beauty"'),
        ("judge", {"pairs": [PAIR], "aspects": []}, "aspects", "no aspects"),
        ("judge", {"pairs": [PAIR], "aspects": [{"name": "x"}]}, "aspects[0].definition", "missing"),
        ("judge", {"pairs": [PAIR], "aspects": ["coherence", "beauty"]}, "aspects", 'unknown aspect "beauty"'),
        ("judge", {"pairs": [PAIR], "orders": "ba"}, "orders", "invalid enum value 'ba': choose both, "),
        ("judge", {"pairs": [PAIR], "model": "other"}, "model", "not served here"),
        ("judge", {"pairs": [PAIR], "timeout": 0}, "timeout", "above 0"),
        ("judge", {"pairs": [PAIR], "order": "ab"}, "order", "no field"),
        ("judge", {"pairs": [PAIR] * 10_001}, "pairs", "at most 10000"),
        ("judge", {}, "pairs", "give either pairs or items"),
        ("judge", {"pairs": [PAIR], "items": []}, "pairs", "give either pairs or items"),
        ("judge", {"items": []}, "items", "empty"),
        ("judge", {"items": [PAIR]}, "items", "the judge pairwise reads pairs, not items"),
        ("judge", {"judge": "poet", "pairs": [PAIR]}, "judge", "invalid enum value 'poet': choose pairwise, "),
        ("judge", {"judge": "own_evil:Judge", "pairs": [PAIR]}, "judge", "invalid enum value 'own_evil:Judge': choose"),
        ("rewards", {"judge": "own_evil:Judge", "groups": [GROUP]}, "judge", "no field"),
        ("judge", {"pairs": [PAIR], "scheme": "fixed"}, "scheme", "scheme is for judge rubric: leave it out"),
        ("judge", {"judge": "rubric", "rubric": "/etc/passwd", "items": [ITEM]}, "rubric", "invalid enum value"),
        ("judge", {"judge": "rubric", "items": [ITEM]}, "items[0]", 'items[0]: "rubric" is missing'),
        ("judge", {"judge": "tree", "items": [ITEM], "language": "../rubric/en"}, "language", "choose from en, zh"),
        (
            "judge",
            {"judge": "principle", "items": [ITEM], "language": "../../x"},
            "language",
            "with adjudge: name another",
        ),
        ("judge", {"judge": "principle", "items": [ITEM], "min_mass": -1}, "min_mass", "min_mass is -1"),
        ("judge", {"judge": "rubric", "items": [{**ITEM, "rubric": HUGE}]}, "items[0]", "weight is 1e+308"),
        ("judge", {"judge": "debate", "items": [ITEM], "override": 0.1}, "override", "override is 0.1"),
        ("judge", {"judge": "debate", "items": [ITEM], "without": "judge,reflect"}, "without", "nobody rules"),
        ("judge", {"judge": "debate", "items": [ITEM], "k": 3}, "k", "examples a debate retrieves: leave it out"),
        ("judge", {"judge": "tree", "items": [ITEM], "weights": "x"}, "weights", "weights hold"),
        ("judge", {"judge": "tree", "items": [ITEM], "weights": "x=1"}, "weights", 'weights name "x"'),
        ("judge", {"judge": "tree", "items": [ITEM], "weights": "emotion=1,emotion=2"}, "weights", "twice"),
        ("judge", {"judge": "scalar", "items": [ITEM]}, "model", "has no reward head"),
        ("judge", {"judge": "personal", "items": [ITEM]}, "items[0]", 'items[0]: its reader has no "reviews"'),
        ("judge", {"judge": "tree", "items": [{**ITEM, "task": "song"}]}, "items[0]", '"task" is "song"'),
        ("judge", {"pairs": [PAIR], "samples": 10**6}, "samples", "<= 64"),
        ("judge", {"pairs": [PAIR], "max_tokens": 5}, "max_tokens", "max_tokens is for judges that write: add mode"),
        ("judge", {"judge": "rubric", "items": [{**ITEM, "rubric": MANY}] * 12}, "items", "asks for 10800 answers"),
        ("rewards", {}, "groups", "either groups, or query"),
        ("rewards", {"groups": [GROUP], "query": []}, "groups", "either groups, or query"),
        ("rewards", {"groups": [GROUP], "prompts": ["p"]}, "prompts", "goes with query"),
        ("rewards", {"groups": [GROUP], "labels": ["r"]}, "labels", "goes with query"),
        ("rewards", {"groups": []}, "groups", "empty"),
        ("rewards", {"groups": [{**GROUP, "completions": []}]}, "groups[0].completions", "empty"),
        ("rewards", {"groups": [{"prompt": "p", "completions": ["c"]}]}, "groups[0].reference", "missing"),
        ("rewards", {"query": ["pa"], "prompts": ["p"]}, "labels", "0 texts for 1 in query"),
        ("rewards", {"query": ["pa"], "prompts": [], "labels": ["r"]}, "prompts", "0 texts for 1 in query"),
        ("rewards", {"query": ["pa"], "prompts": ["q"], "labels": ["r"]}, "query[0]", "does not hold"),
        ("rewards", {"query": ["pa"], "prompts": ["p"], "labels": [None]}, "labels[0]", "reference"),
        ("rewards?fill=x", {"groups": [GROUP]}, "fill", "expected"),
        ("rewards?fil=0.5", {"groups": [GROUP]}, "fil", "there are fill and ends"),
        ("rewards?fill=nan", {"groups": [GROUP]}, "fill", "finite"),
    ],
)
def test_each_mistake_names_its_place(site: Served, path: str, body: dict[str, Any], param: str, message: str) -> None:
    response = site.post(f"/v1/{path}", body)
    error = error_of(response)
    assert response.status_code in (400, 404) and error["param"] == param and message in error["message"]


def test_no_request_imports_a_module(site: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_evil.py").write_text("from adjudge import PointwiseJudge as Judge\n")
    monkeypatch.syspath_prepend(tmp_path)
    for path, body in (("judge", {"items": [ITEM]}), ("judge", {"pairs": [PAIR]}), ("rewards", {"groups": [GROUP]})):
        for field in ("judge", "rubric", "aspects", "language", "model", "weights", "without"):
            site.post(f"/v1/{path}", {**body, field: "own_evil:Judge"})
    assert "own_evil" not in sys.modules


def test_many_aspects_of_one_pair_are_many_answers(site: Served) -> None:
    response = site.post("/v1/judge", {"pairs": [PAIR], "aspects": ",".join(f"a{n}=x" for n in range(2501))})
    assert response.status_code == 400 and error_of(response)["message"].startswith("pairs asks for 10004 answers")
    many = ",".join(f"a{n}=x" for n in range(10_001))
    response = site.post("/v1/judge", {"judge": "pointwise", "items": [ITEM], "aspects": many})
    assert response.status_code == 400 and error_of(response)["message"].startswith("items asks for 10001 answers")


def test_aspects_in_one_text_are_not_read_where_that_takes_long(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Endless.in_place_of(monkeypatch, module, "aspects_of")
    many = {"aspects": "a=" + ",b" * (module.MOST_TEXT // 2)}
    for response in (
        site.post("/v1/judge", {"pairs": [PAIR], "aspects": [many["aspects"][: module.MOST_TEXT], "coherence"]}),
        site.post("/v1/judge", {"pairs": [PAIR], **many}),
        site.post("/v1/rewards", {"groups": [GROUP], **many}),
    ):
        assert response.status_code == 400 and error_of(response)["param"] == "aspects"
        assert error_of(response)["message"].endswith("at most 131072, or give them as a list of aspects")
    assert reading.begun.empty()


def test_no_question_is_worded_where_there_are_too_many(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    wording = Endless.in_place_of(monkeypatch, site.engine.engine.tokenizer, "chat")
    aspects = [{"name": f"a{n}", "definition": "x"} for n in range(5001)]
    response = site.post("/v1/judge", {"pairs": [PAIR], "aspects": aspects})
    assert response.status_code == 400 and error_of(response)["message"].startswith("pairs asks for 10002 answers")
    response = site.post("/v1/judge", {"judge": "rubric", "items": [{**ITEM, "rubric": MANY}] * 12})
    assert response.status_code == 400 and error_of(response)["message"].startswith("items asks for 10800 answers")
    assert wording.begun.empty()


def test_answers_are_counted_of_each_rubric_and_not_of_the_longest_for_all(site: Served) -> None:
    items = [{**ITEM, "response": f"Story {n}.", "rubric": {"criteria": MANY["criteria"][:1]}} for n in range(20)]
    items[7] = {**ITEM, "rubric": MANY}
    body = {"judge": "rubric", "items": items, "timeout": 0.001}
    assert site.post("/v1/judge", body).status_code == 200


@pytest.mark.parametrize(
    ("where", "path", "body"),
    [
        ("encodable", "/v1/judge", {"pairs": [PAIR]}),
        ("response_of", "/v1/rewards", {"query": ["pa"], "prompts": ["p"], "labels": ["b"]}),
        ("chat", "/v1/judge", {"pairs": [PAIR]}),
        ("chat", "/v1/rewards", {"groups": [GROUP]}),
    ],
)
def test_what_a_judge_reads_for_a_client_that_goes_is_read_no_further(
    site: Served, where: str, path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_judges = hasattr(requests, where)
    reading = Endless.in_place_of(monkeypatch, requests if of_judges else site.engine.engine.tokenizer, where)
    with raw_request(site.url, path, json.dumps(body).encode()):
        assert reading.begun.get(timeout=PATIENCE)
        assert reading.ended.empty()
    assert reading.ended.get(timeout=PATIENCE)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/judge", {"pairs": [PAIR]}),
        ("/v1/judge", {"pairs": [PAIR], "mode": "reasoned", "max_tokens": 4}),
        ("/v1/rewards", {"groups": [GROUP]}),
    ],
)
def test_what_a_judge_asks_has_the_priority_of_its_request(
    site: Served, path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    add, seen = site.engine.engine.scheduler.add, list[int]()

    def noted(*requests: Request) -> None:
        seen.extend(request.priority for request in requests)
        add(*requests)

    monkeypatch.setattr(site.engine.engine.scheduler, "add", noted)
    for asked in (-3, None):
        assert site.post(path, {**body, "priority": asked}).status_code == 200
        assert set(seen) == {asked or 0}
        seen.clear()


def test_verdicts_are_worded_where_others_are_not_held_up(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def noted(*of: Any) -> Any:
        threads.append(threading.current_thread().name)
        return record(*of)

    record = module.verdict_record
    monkeypatch.setattr(module, "verdict_record", noted)
    assert site.post("/v1/judge", {"pairs": [PAIR] * 2}).status_code == 200
    assert len(threads) == 2 and all(name.startswith("adjudge-http") for name in threads)


def test_a_client_that_goes_takes_its_judge_with_it(site: Served) -> None:
    stats, before = site.engine.engine.stats, site.engine.engine.stats.tokens_computed
    body = json.dumps({"pairs": [{**PAIR, "story_a": f"{number} {'a' * 800}"} for number in range(300)]}).encode()
    with raw_request(site.url, "/v1/judge", body):
        wait_until_busy(site.engine)
    wait_until_idle(site.engine)
    assert stats.tokens_computed - before < 300 * 400  # half of the stories' tokens
    asked = stats.prompts
    assert site.post("/v1/judge", {"pairs": [PAIR]}).status_code == 200
    assert stats.prompts - asked == 4  # nobody else goes on asking


def test_a_client_that_goes_does_not_leave_its_judge_writing(site: Served) -> None:
    stats, before = site.engine.engine.stats, site.engine.engine.stats.tokens_computed
    how = {"mode": "reasoned", "max_tokens": 1500, "attempts": 1, "temperature": 0.0}
    with raw_request(site.url, "/v1/judge", json.dumps({"pairs": [PAIR], **how}).encode()):
        wait_until_busy(site.engine)
    wait_until_idle(site.engine)
    assert 0 < stats.tokens_computed - before < 1500
    assert site.post("/v1/judge", {"pairs": [PAIR]}).status_code == 200


def test_a_request_is_one_window(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    windows: list[int] = []
    judge_iter = PairwiseJudge.judge_iter

    def noted(self: PairwiseJudge, subjects: Any, window: int = 0) -> Iterator[PairVerdict]:
        windows.append(window)
        return judge_iter(self, subjects, window)

    monkeypatch.setattr(PairwiseJudge, "judge_iter", noted)
    assert site.post("/v1/judge", {"pairs": [PAIR] * 3}).status_code == 200 and windows == [3]


def test_more_than_the_queue_ever_takes_is_told() -> None:
    engine = AsyncEngine(Engine(MODEL, max_queue=3))
    with served(engine, routes=[judging([WIT])]) as site:
        response = site.post("/v1/judge", {"pairs": [PAIR]})
        assert response.status_code == 400 and "needs 4 places in a queue of 3" in error_of(response)["message"]
    engine.worker.close(drain=False)


def test_after_its_time_a_judge_reads_no_more_prompts(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    encode = site.engine.face.tokenizer.encode

    def noted(text: str, *how: Any, **more: Any) -> Any:
        read.append(text)
        return encode(text, *how, **more)

    monkeypatch.setattr(site.engine.face.tokenizer, "encode", noted)
    clock = SimpleNamespace(monotonic=lambda: len(read) * 0.002)
    monkeypatch.setattr(waiting, "time", clock)
    for one in (module, service_module):
        monkeypatch.setattr(one, "monotonic", clock.monotonic)
    pairs = [{**PAIR, "story_a": f"Story {n}."} for n in range(200)]
    for judge in ("pairwise", "pointwise"):
        read.clear()
        verdicts = site.post("/v1/judge", {"pairs": pairs, "judge": judge, "timeout": 0.05}).json()["verdicts"]
        assert len(verdicts) == 200 and verdicts[-1]["abstained"] == "timeout" and verdicts[-1]["preference"] is None
        assert "Story 0." in read and "Story 199." not in read
    writes = {"judge": "pairwise", "mode": "reasoned", "max_tokens": 4, "attempts": 2, "samples": 2}
    [*_, last] = site.post("/v1/judge", {"pairs": pairs[:40], "timeout": 0.05, **writes}).json()["verdicts"]
    assert last["abstained"] == "timeout"
