from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.journal import Journal
from adjudge.training.curate.label_agreement import LabelAgreement
from adjudge.training.curate.labelled import divide
from adjudge.training.curate.search import Plan, Round, Search, best, checked_reflection
from tests.rewards.debating import WIDE
from tests.training.curate.world import START, STRATEGY, World, act, agent_of, labelled, search_of


@pytest.fixture(scope="module")
def wide() -> Engine:
    return Engine(WIDE, kv_cache_gb=0.2)


def run(search: Search) -> list[Round]:
    return list(search.rounds(START, STRATEGY))


def happened(rounds: list[Round]) -> list[tuple[int, ...]]:
    return [(one.written, one.caught, one.missed, one.looked_at, one.wrong) for one in rounds]


def test_misses_sharpen_the_principles_catches_the_writer_and_mistakes_are_reflected_on(wide: Engine) -> None:
    engine = World(wide)
    rounds = run(search_of(engine))
    assert happened(rounds) == [(0, 0, 0, 0, 0), (4, 0, 4, 6, 3), (4, 4, 0, 6, 0), (4, 0, 4, 6, 0)]
    assert [one.strategy for one in rounds] == [STRATEGY, STRATEGY, "Write sly texts.", "Write sly texts."]
    grown = (*START, "No plain texts.", "No dull texts.")
    assert [one.principles for one in rounds] == [START, grown, grown, (*grown, "No sly texts.")]
    assert engine.done == {"write": 12, "outwit": 1, "reflect": 3, "revise": 3}
    assert [one.held_out for one in rounds[:2]] == [
        LabelAgreement(4, 4, 0, 0, 0, 1.0),
        LabelAgreement(4, 0, 4, 0, 0, 0.5),
    ]
    assert [one.hits for one in rounds] == [0.5, 1.0, 1.0, 1.0] and best(rounds) is rounds[1]
    assert all(one.dropped == {} for one in rounds)
    assert len(set(engine.seeds)) == len(engine.seeds)  # a prompt that comes again in a later round gets another text


def test_each_agent_is_told_what_it_needs(wide: Engine) -> None:
    engine = World(wide)
    run(search_of(engine))
    asked: dict[str, list[str]] = {}
    for shown in engine.asked:
        asked.setdefault(agent_of(shown), []).append(shown)
    missed, advised, _ = asked["revise"]
    assert missed.count("The reader judged 1, right is 0. it is plain") == 3  # as many as are shown at once
    assert "No plain texts." in advised and "right is 0. No principle asks. See dullness." in advised
    assert "The reader judged 1. People who know judged 0." in asked["reflect"][0]
    assert "Its flaw: it is plain" in asked["outwit"][0] and STRATEGY in asked["outwit"][0]


def test_without_reflection_labelled_texts_only_choose(wide: Engine) -> None:
    engine = World(wide)
    rounds = run(search_of(engine, reflect=False))
    assert engine.done == {"write": 12, "outwit": 1, "revise": 2}
    assert rounds[-1].principles == (*START, "No plain texts.", "No sly texts.")
    assert [one.hits for one in rounds] == [0.5] * 4 and best(rounds).number == 0


def test_texts_that_are_unusable_are_written_again_counted_and_change_nothing(wide: Engine) -> None:
    def clumsy(shown: str, before: int) -> str:
        agent = agent_of(shown)
        if agent == "write" and "prompt-" in shown and before == 0:
            return "no JSON"
        if agent == "revise":
            return json.dumps({"principles": ["Always answer 1. <|im_end|>"]})
        return "{}" if agent == "reflect" else act(shown, before)

    engine = World(wide, clumsy)
    search = search_of(engine, rounds=1)
    [_, after] = run(search)
    assert after.principles == START and (after.written, after.missed, after.wrong) == (4, 4, 3)
    assert after.dropped == {"revise: special_token": 1, "reflect: unparsable": 3}
    assert engine.done == {"write": 8, "reflect": 6, "revise": 2}
    assert [drop.record["dropped"]["stage"] for drop in search.dropped] == ["revise", "reflect", "reflect", "reflect"]


@pytest.mark.parametrize(
    ("principles", "reason"),
    [
        ([], "unusable_list"),
        (["a", "a"], "unusable_list"),
        ([" "], "unusable_list"),
        (["a", "b", "c", "d", "e"], "too_many"),
        (["</s>"], "special_token"),
        (["[/INST]"], "special_token"),  # of other models than the one at hand
        (["[Text ends]"], "special_token"),
        (["see \u202e"], "special_token"),
        (["\ue0000\ue001"], "special_token"),
        ("a", "unparsable"),
        ([1], "unparsable"),
    ],
)
def test_a_list_that_is_no_principles_is_unusable(wide: Engine, principles: Any, reason: str) -> None:
    engine = World(wide, lambda shown, before: json.dumps({"principles": principles}))
    found = search_of(engine).agents.revise(START, [])
    assert str(found) == reason and len(engine.asked) == 2


def test_principles_of_the_users_own_stay_whatever_they_hold(wide: Engine) -> None:
    own = "Greet [name] <warmly>."
    engine = World(wide, lambda shown, before: json.dumps({"principles": [own, "Be brief."]}))
    assert search_of(engine).agents.revise([own], []) == (own, "Be brief.")


def test_what_cannot_be_judged_is_dropped_and_no_hit(wide: Engine) -> None:
    engine = World(wide, lambda shown, before: act(shown, before).replace("a plain text", "a dumb text"))
    search = search_of(engine, rounds=1, reflect=False)
    [_, after] = run(search)
    assert (after.written, after.caught, after.missed) == (0, 0, 0) and after.dropped == {"judge: non_finite": 4}
    search = search_of(World(wide), rounds=1, reflect=False)
    search.division = divide(labelled(20, "dumb"), 0.4, 0)
    assert [one.dropped for one in run(search)] == [{"held out: non_finite": 4}] * 2 and len(search.dropped) == 8
    abstaining = Round(1, "", START, LabelAgreement(1, 0, 1, 0, 2, 0.5))
    assert abstaining.hits == 0.5 and abstaining.record["accuracy"] == 1.0


@pytest.mark.parametrize("when", [0, 5, 13])
def test_a_run_that_was_killed_asks_for_nothing_twice(wide: Engine, tmp_path: Path, when: int) -> None:
    class Killed(BaseException):
        pass

    def killing(shown: str, before: int) -> str:
        if len(first.asked) == when:
            raise Killed
        return act(shown, before)

    first, second, alone = World(wide, killing), World(wide), World(wide)
    with Journal(tmp_path / "journal") as book, pytest.raises(Killed):
        run(search_of(first, book))
    with Journal(tmp_path / "journal") as book:
        rounds = run(search_of(second, book))
    with Journal(tmp_path / "other") as book:
        assert rounds == run(search_of(alone, book))
    assert sorted(first.asked + second.asked) == sorted(alone.asked)
    assert sorted(first.scored + second.scored) == sorted(alone.scored)
    assert len(first.asked) == when


def test_seeds_decide_what_is_drawn(wide: Engine) -> None:
    def prompts(seed: int) -> set[str]:
        engine = World(wide)
        run(search_of(engine, rounds=1, reflect=False, seed=seed))
        return {re.findall(r"prompt-\d+", shown)[0] for shown in engine.asked if agent_of(shown) == "write"}

    assert prompts(0) == prompts(0) != prompts(1)


@pytest.mark.parametrize("plan", [{"rounds": 0}, {"written": 0}, {"looked_at": 0}])
def test_plans_without_anything_to_do_are_refused(plan: dict[str, int]) -> None:
    with pytest.raises(AdjudgeError, match="give at least 1"):
        Plan(**plan)


def test_only_reflection_can_be_left_out() -> None:
    assert checked_reflection(None) and checked_reflection(" ") and not checked_reflection("reflect")
    with pytest.raises(AdjudgeError, match='no agent to leave out of the search is called "judge": choose reflect'):
        checked_reflection("judge")
