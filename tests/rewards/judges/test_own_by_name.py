"""Judges of one's own by the names that they have in a module, and what they read of a row."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.absent import AbsentEngine, Card, ModelNeeded
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.engines.specification import EngineSpec, JudgeSource, JudgeSpec
from adjudge.rewards.imported import importable
from adjudge.rewards.judge_rewards.judge_reward import JudgeReward
from adjudge.rewards.judge_rewards.story_reward import StoryReward
from adjudge.rewards.judge_rewards.tournament_reward import TournamentReward
from adjudge.rewards.judges.judge import clean
from adjudge.rewards.judges.kinds import kind_of, misfit
from adjudge.rewards.judges.own import Worded
from adjudge.rewards.judges.published_rubrics import SIX
from adjudge.rewards.judges.tree_nodes import leaf_name
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.verdict import Item, Review
from adjudge.rewards.records.wire import item_of
from tests.rewards.judges.homework import TINY, Homework

MODULE = """
from adjudge import DebateJudge, OwnJudge, PersonalJudge, PointwisePairJudge, PrincipleJudge, RubricJudge, TreeJudge

class Short(OwnJudge):
    range = (1.0, 3.0)

    def __init__(self, engine, *, strict=False, **how):
        super().__init__(engine, **how)
        self.strict = strict

    def questions(self, item):
        return [self.question("short", "Is it short? {text}", ["1", "2", "3"], text=item.response)]

class Reading(Short):
    reads = ("rubric", "reviews", "genre", "task")

class Unranged(Short):
    def questions(self, item):
        return []

class Strict(Short):
    def __init__(self, engine, *, level, journal=None):
        super().__init__(engine, journal=journal)
        self.level = 1 + level

class Alone(Short):
    def __init__(self, engine):
        super().__init__(engine)

class Pairs(PointwisePairJudge):
    pass

class Reader(PersonalJudge):
    pass

class Graded(RubricJudge):
    pass

class Principled(PrincipleJudge):
    pass

class Debated(DebateJudge):
    pass

class Grown(TreeJudge):
    pass

def function(engine, journal=None):
    return Short(engine)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_short", raising=False)
    (tmp_path / "own_short.py").write_text(MODULE)
    importable(tmp_path)
    return "own_short"


def test_a_specification_names_it_by_its_module_and_opens_it_with_options_and_journal(
    module: str, tmp_path: Path
) -> None:
    engine = EngineSpec(TINY, kv_cache_gb=0.2)
    spec = JudgeSpec(f"{module}:Short", {"strict": True, "min_mass": 0.0}, engine, str(tmp_path / "j"))
    judge: Any = spec.open()
    assert judge.strict and judge.min_mass == 0.0 and judge.journal.path == tmp_path / "j"
    reward = JudgeReward(spec)
    again = pickle.loads(pickle.dumps(reward))
    assert reward(["p"], ["A text."]) == again(["p"], ["A text."]) != [None] and reward.engines == again.engines
    [verdict] = judge.judge([Item("p", "A text.")])
    assert reward(["p"], ["A text."]) == [pytest.approx(((verdict.score or 0.0) - 1) / 2)]
    written: Any = JudgeSpec(f"{module}:Short", {"mode": "reasoned", "max_tokens": 9, "samples": 2}, engine).open()
    assert (written.asking.sampling.max_tokens, written.asking.n) == (9, 2)


COLUMNS: dict[str, Any] = {
    "rubric": {"criteria": [{"name": "wit", "text": "Is it funny?", "points": 4}]},
    "reviews": [{"plot": "A plot.", "score": 3}],
    "genre": "tale",
    "task": "guide",
}


def test_it_sees_what_it_reads_of_a_row_in_a_file_and_in_a_reward(module: str) -> None:
    seen: list[Item] = []

    class Looking(Homework):
        reads = ("rubric", "reviews", "genre", "task")

        def questions(self, item: Item) -> Sequence[Worded]:
            seen.append(item)
            return super().questions(item)

        range = (0.0, 9.0)

    reward = JudgeReward(Looking(AbsentEngine(Card(fingerprint="x"))))
    group = Group("p", ("r",), "ref", columns=COLUMNS)
    with pytest.raises(ModelNeeded):
        reward.score_groups([group])
    row = Row("line 1", {"prompt": "p", "response": "r", "reference": "ref", **COLUMNS})
    read = kind_of(f"{module}:Reading").subject(row, 1)
    for item in (seen[0], read):
        assert (item.reference, item.genre, item.task) == ("ref", "tale", "guide")
        assert item.reviews == (Review("A plot.", None, 3.0),)
        assert item.rubric is not None and [one.name for one in item.rubric.criteria] == ["wit"]
    with pytest.raises(
        AdjudgeError, match='line 1: "task" is "math": write completion or guide or open, or leave it out'
    ):
        kind_of(f"{module}:Reading").subject(Row("line 1", {"prompt": "p", "response": "r", "task": "math"}), 1)
    other = kind_of(f"{module}:Short").subject(Row("line 1", {"prompt": "p", "response": "r", "task": "math"}), 1)
    assert other == Item("p", "r", id=other.id), "columns that it does not read may be anything"
    with pytest.raises(AdjudgeError, match='Wrong.reads has "prompt", which an item has in any case: leave it out'):
        type("Wrong", (Homework,), {"reads": ("rubric", "prompt")})
    for wrong in ("rubric", ("rubric", 5)):
        with pytest.raises(AdjudgeError, match=r"Wrong.reads is .*: give a tuple of columns"):
            type("Wrong", (Homework,), {"reads": wrong})


def test_it_sees_columns_of_ones_own_in_a_file_and_in_a_reward() -> None:
    seen: list[Item] = []

    class Looking(Homework):
        reads = ("level", "genre")
        range = (0.0, 9.0)

        def questions(self, item: Item) -> Sequence[Worded]:
            seen.append(item)
            return super().questions(item)

    level = {"grade": 3, "words": ["caf\u00e9", "\ud800"]}
    reward = JudgeReward(Looking(AbsentEngine(Card(fingerprint="x"))))
    with pytest.raises(ModelNeeded):
        reward.score_groups([Group("p", ("r",), columns={"level": level, "tone": "dry"})])
    read = item_of(Row("line 1", {"prompt": "p", "response": "r", "level": level, "tone": "dry"}), 1, Looking.reads)
    for item in (seen[0], read, clean(Item("p", "r", columns={"level": level}))):
        assert item.columns == {"level": {"grade": 3, "words": ["café", "\ufffd"]}} and item.genre is None
    with pytest.raises(AdjudgeError, match='prompt "p": "level" is missing .*: its columns are "tone"$'):
        reward.score_groups([Group("p", ("r",), columns={"tone": "dry"})])
    with pytest.raises(AdjudgeError, match='line 1: "level" is missing .its judge reads it.: .* is "levle" meant'):
        item_of(Row("line 1", {"prompt": "p", "response": "r", "levle": 3}), 1, Looking.reads)
    assert (
        item_of(Row("line 1", {"prompt": "p", "response": "r", "level": None}), 1, ["level"]).columns["level"] is None
    )


@pytest.mark.parametrize("name", ["rubric", "checklist", "reviews", "genre", "task"])
def test_a_column_that_it_reads_is_one_for_the_whole_group_or_a_mistake(tiny: Engine, name: str) -> None:
    reading: Any = type("Reading", (Homework,), {"reads": (name.replace("checklist", "rubric"),), "range": (0.0, 9.0)})
    with pytest.raises(AdjudgeError, match=f'prompt "p": the responses differ in "{name}", of which one value'):
        JudgeReward(reading(tiny))(["p"] * 2, ["a", "b"], **{name: ["x", "y"]})
    assert None not in JudgeReward(Homework(tiny, min_mass=0.0))(["p"] * 2, ["a", "b"], **{name: ["x", "y"]})


def test_its_parts_are_told_where_a_row_has_a_rubric(tiny: Engine) -> None:
    group = Group("p", ("r",), columns={"rubric": COLUMNS["rubric"]})
    assert set(JudgeReward(Homework(tiny, min_mass=0.0)).score_groups([group])[0].parts) == {"a", "b"}


def test_one_derived_from_another_reads_what_that_does(module: str) -> None:
    engine = EngineSpec(TINY, kv_cache_gb=0.2)
    assert JudgeSource(JudgeSpec(f"{module}:Pairs", engine=engine)).of_pairs
    assert kind_of(f"{module}:Pairs").what == "pairs" and kind_of(f"{module}:Short").what == "items"
    with pytest.raises(AdjudgeError, match='its reader has no "reviews"'):
        JudgeReward(JudgeSpec(f"{module}:Reader", engine=engine))(["p"], ["r"])
    story = StoryReward(JudgeSpec(f"{module}:Pairs", {"min_mass": 0.0}, engine))
    assert set(story.score_groups([Group("p", ("A.",), "B.")])[0].parts) >= {"advantage", "aspect/creativity"}
    assert TournamentReward(JudgeSpec(f"{module}:Pairs", engine=engine)).source.of_pairs
    assert "was not trained for own_short:Short" in (misfit("house", f"{module}:Short", {}) or "")


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        ("own_short:Long", "has no Long: it has "),
        ("own_short:function", "which is <function .*: name a class derived from OwnJudge"),
        ("adjudge:OwnJudge", "name a class derived from OwnJudge"),
        ("no_such_module:Short", "there is no module no_such_module"),
        ("short", 'no judge is called "short": choose .*, or write package.module:name for one of your own'),
        (Homework, r'give its name, as JudgeSpec\("tests.rewards.judges.homework:Homework"\)'),
        (3, "the judge is 3: give its name"),
    ],
)
def test_a_specification_of_what_is_no_judge_is_refused(module: str, judge: Any, message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        JudgeSpec(judge)


def test_a_specification_of_one_without_a_range_is_refused_before_anything_is_opened(module: str) -> None:
    with pytest.raises(AdjudgeError, match="Unranged declares no range"):
        JudgeReward(JudgeSpec(f"{module}:Unranged"))


@pytest.mark.parametrize(
    ("judge", "options", "message"),
    [
        (
            "Short",
            {"strikt": True},
            'Short takes no option "strikt": choose from strict, mode, .*, or name it in __init__',
        ),
        ("Unranged", {"rubric": "six"}, 'Unranged takes no option "rubric"'),
        ("Pairs", {"strict": True}, 'Pairs takes no option "strict": choose from aspects, orders, mode, '),
        ("Short", {"max_tokens": 9}, 'no option "max_tokens": it is for judges that write, add mode "reasoned"'),
        ("Short", {"engine": 1}, "Short cannot be opened .multiple values for argument 'engine'"),
        ("Short", {"journal": 1}, "Short cannot be opened .*multiple values for keyword argument 'journal'"),
        (
            "Strict",
            {"level": 1, "min_mass": 0.1},
            'Strict takes no option "min_mass": choose from level, or',
        ),
        ("Strict", {}, "Strict cannot be opened .missing a required.* argument: 'level'"),
        (
            "Alone",
            {},
            "Alone cannot be opened .got an unexpected keyword argument 'journal'.: it has to take an engine",
        ),
    ],
)
def test_a_specification_with_options_that_its_class_does_not_take_is_refused_before_it_is_opened(
    module: str, judge: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(AdjudgeError, match=message):
        JudgeSpec(f"{module}:{judge}", options)


WEIGHED = ("opening & ending", "language & rhetoric", "argument & logic", "emotion", "plots & structure")


def test_one_derived_from_another_takes_its_options_as_that_has_them(module: str, tmp_path: Path) -> None:
    (tmp_path / "rubric.toml").write_text('[[criteria]]\nname = "wit"\ntext = "Is it funny?"\npoints = 4\n')
    (tmp_path / "principles.txt").write_text("1. Be brief.\n2. Be kind.\n")
    (tmp_path / "good.jsonl").write_text('{"prompt": "p", "response": "r"}\n')

    def opened(name: str, **options: Any) -> Any:
        return JudgeSpec(f"{module}:{name}", options, EngineSpec(TINY, kv_cache_gb=0.2)).open()

    for given in (tmp_path / "rubric.toml", str(tmp_path / "rubric.toml")):
        assert [one.name for one in opened("Graded", rubric=given).rubric.criteria] == ["wit"]
    assert opened("Graded", rubric="six").rubric is SIX is opened("Graded", rubric=SIX).rubric
    assert opened("Principled", principles=tmp_path / "principles.txt").principles == ("Be brief.", "Be kind.")
    assert opened("Debated", examples=tmp_path / "good.jsonl", without="reflect").index is not None
    tree = opened("Grown", without="format,impression,instances", weights=", ".join(f"{leaf}=2" for leaf in WEIGHED))
    assert set(map(leaf_name, tree.weights)) == set(WEIGHED) and "impression" in tree.without
    assert not opened("Reader", without="texts", k=2).texts and opened("Reader", k=2).texts
    with pytest.raises(AdjudgeError, match='no rubric is called "seven"'):
        JudgeSpec(f"{module}:Graded", {"rubric": "seven"})


def test_a_mistake_in_an_authors_init_is_told_as_what_it_is(module: str) -> None:
    spec = JudgeSpec(f"{module}:Strict", {"level": "high"}, EngineSpec(TINY, kv_cache_gb=0.2))
    with pytest.raises(
        AdjudgeError, match=r"opening the judge own_short:Strict ends in TypeError: .*own_short.py, line"
    ):
        spec.open()
