"""A judge of one's own has what all judges have."""

from __future__ import annotations

import math
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adjudge.engine.absent import AbsentEngine, Card, ModelNeeded
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.models.aliases import HOUSE
from adjudge.engine.text.labels import Labels
from adjudge.rewards.group import Group
from adjudge.rewards.imported import importable
from adjudge.rewards.journal import Journal
from adjudge.rewards.judge_reward import JudgeReward
from adjudge.rewards.judges.kinds import kind_name, kind_of, misfit
from adjudge.rewards.judges.own import OwnJudge, Worded
from adjudge.rewards.judges.pointwise import PointwiseJudge
from adjudge.rewards.judges.principle import PrincipleJudge
from adjudge.rewards.judges.published_rubrics import SIX
from adjudge.rewards.judges.tree_nodes import leaf_name
from adjudge.rewards.rows import Row
from adjudge.rewards.specification import EngineSpec, JudgeSource, JudgeSpec
from adjudge.rewards.story_reward import StoryReward
from adjudge.rewards.tournament_reward import TournamentReward
from adjudge.rewards.verdict import Item, Review
from tests.rewards.scripted import ScriptedEngine

TINY = "dummy:tiny-llama"
DIGITS = Labels(tuple("0123456789"))
ITEM = Item("2 + 2?", "4", id="mine")


class Homework(OwnJudge):
    range = (0.0, 9.0)

    def __init__(self, engine: Any, *, words: str = "{task} {answer} Right?", **how: Any) -> None:
        super().__init__(engine, **how)
        self.words = words

    def questions(self, item: Item) -> Sequence[Worded]:
        texts = {"task": item.prompt, "answer": item.response}
        return [self.question(name, self.words, DIGITS, answer, **texts) for name, answer in (("a", "A:"), ("b", "B:"))]


class Lowest(Homework):
    range = (0.0, 9.0)

    def score_of(self, parts: Any) -> float:
        return min(part.score for part in parts.values())


class Unranged(Homework):
    def score_of(self, parts: Any) -> float:
        return 3.0


class Boundless(Unranged):
    range = (-math.inf, math.inf)


@pytest.fixture(scope="module")
def tiny() -> Engine:
    return Engine(TINY, kv_cache_gb=0.2)


def test_a_verdict_has_a_part_for_each_question_and_their_mean_or_what_its_author_makes_of_them(tiny: Engine) -> None:
    [mean], [least] = (made(tiny, min_mass=0.0).judge([ITEM]) for made in (Homework, Lowest))
    a, b = (part.score or 0.0 for part in mean.breakdown.values())
    assert list(mean.breakdown) == ["a", "b"] and a != b and mean.id == "mine"
    assert mean.score == pytest.approx((a + b) / 2) and least.score == min(a, b)
    assert mean.breakdown["a"].mass is not None and len(mean.breakdown["a"].distribution or ()) == 10


def test_its_journal_is_read_again_and_other_words_or_another_content_are_other_verdicts(
    tiny: Engine, tmp_path: Path
) -> None:
    with Journal(tmp_path / "j") as journal:
        judge = Homework(tiny, journal=journal, min_mass=0.0)
        first, computed = judge.judge([ITEM]), tiny.stats.tokens_computed
        assert Homework(tiny, journal=journal, min_mass=0.0).judge([ITEM]) == first
        assert tiny.stats.tokens_computed == computed
        other = Homework(tiny, words="{task} {answer} Wrong?", min_mass=0.0)
        assert len({judge.key(ITEM), other.key(ITEM), Lowest(tiny, min_mass=0.0).key(ITEM)}) == 3
        other.words, key = judge.words, judge.key(ITEM)
        assert other.key(ITEM) == key
        other.content = 2
        assert other.key(ITEM) != key
        again = Homework(AbsentEngine(Card.of(tiny)), journal=journal, min_mass=0.0)
        assert again.judge([ITEM]) == first  # so that a training run can be replayed without its model


def test_long_texts_are_shortened_and_what_the_model_does_not_answer_abstains(tiny: Engine) -> None:
    long = Item("2 + 2?", "four " * 3000)
    [kept] = Homework(tiny, min_mass=0.0).judge([long])
    [refused] = Homework(tiny, min_mass=0.0, cut="never").judge([long])
    [unsure] = Homework(tiny, min_mass=0.999).judge([ITEM])
    assert kept.truncated and kept.score is not None
    assert (refused.score, refused.abstained) == (None, "too_long")
    assert (unsure.score, unsure.abstained) == (None, "low_mass")


def test_house_reads_the_texts_as_one_paragraph(tiny: Engine) -> None:
    judge = Homework(AbsentEngine(Card(fingerprint=HOUSE.fingerprint)))
    [first, _] = judge.questions(Item("p", "One.\n\nTwo."))
    assert [one.text for one in first.words.segments if not one.trusted] == ["p", "One. Two."]


def test_it_writes_first_where_it_is_to_reason(tiny: Engine) -> None:
    engine = ScriptedEngine(tiny, lambda shown, before: "Well done. <ANSWER>7</ANSWER>")
    [verdict] = Homework(engine, mode="reasoned", min_mass=0.0).judge([ITEM])
    assert verdict.score is not None and verdict.analysis == dict.fromkeys("ab", ("Well done. <ANSWER>7</ANSWER>",))
    assert not any(shown.endswith(("A:", "B:")) for shown in engine.asked)  # the slot is where the score is written


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda judge: [], r"Wrong.questions has the names \[\]: ask one or more, each by its own name"),
        (lambda judge: None, r"Wrong.questions has None: make each with self.question"),
        (lambda judge: ["How good?"], r"Wrong.questions has 'How good\?': make each with self.question"),
        (lambda judge: [judge.question("a", "x", DIGITS)] * 2, "has the names"),
        (lambda judge: [judge.question("a", "{story}", DIGITS)], 'names "{story}" but no story='),
        (lambda judge: [judge.question("a", "x", "yes no")], "labels must be a list"),
        (lambda judge: [judge.question("a", "x", ["yes", "no"])], "question a are no numbers: give Labels"),
    ],
)
def test_what_an_author_gets_wrong_is_one_sentence(tiny: Engine, asked: Any, message: str) -> None:
    class Wrong(OwnJudge):
        def questions(self, item: Item) -> Any:
            return asked(self)

    with pytest.raises(AdjudgeError, match=message):
        Wrong(tiny, min_mass=0.0).judge([ITEM])


class Odd(Homework):
    """Its score is what it has been given."""

    score: Any = None

    def score_of(self, parts: Any) -> Any:
        return self.score


@pytest.mark.parametrize("score", ["good", True, 1j])
def test_a_score_that_is_no_number_is_refused(tiny: Engine, score: Any) -> None:
    judge = Odd(tiny, min_mass=0.0)
    judge.score = score
    with pytest.raises(AdjudgeError, match="Odd.score_of gave .*: give a number, or None"):
        judge.judge([ITEM])


@pytest.mark.parametrize(
    "score", [None, math.nan, math.inf, -math.inf, np.float32("nan"), pytest.param(10**400, id="vast")]
)  # None is no score
def test_a_score_that_is_not_finite_abstains_and_the_run_goes_on(tiny: Engine, tmp_path: Path, score: Any) -> None:
    with Journal(tmp_path / "j") as journal:
        judge = Odd(tiny, min_mass=0.0, journal=journal)
        judge.score, why = score, None if score is None else "non_finite"
        [verdict] = judge.judge([ITEM])
        assert (verdict.score, verdict.abstained) == (None, why) and len(verdict.breakdown) == 2
        assert judge.judge([ITEM]) == [verdict]
        [group] = JudgeReward(judge, scale="own").score_groups([Group("p", ("r",))])
    assert (group.rewards, group.abstained) == ((None,), (why or "unsupported",))


def test_a_score_may_be_a_number_of_any_kind(tiny: Engine, tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        judge = Odd(tiny, min_mass=0.0, journal=journal)
        judge.score = np.float32(2.5)
        assert judge.judge([ITEM])[0].score == 2.5


class Failing(Homework):
    def questions(self, item: Item) -> Any:
        yield from super().questions(item)
        assert item.prompt != "fail", "no such\nprompt"
        if item.prompt == "refuse":
            raise AdjudgeError("as it is")
        math.fsum([item.prompt == "fail", *item.reviews, *(["x"] if item.prompt == "sum" else [])])  # type: ignore[list-item]

    def score_of(self, parts: Any) -> Any:
        return parts["c"].score


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("fail", r"^Failing.questions ends in AssertionError: no such \(test_own.py, line \d+\): mend it there$"),
        ("sum", r"^Failing.questions ends in TypeError: must be real number, not str \(test_own.py, line \d+\): mend"),
        ("refuse", "^as it is$"),
        ("p", r"^Failing.score_of ends in KeyError: 'c' \(test_own.py, line \d+\): mend it there$"),
    ],
)
def test_what_an_authors_code_raises_is_one_sentence_with_its_place(tiny: Engine, prompt: str, message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        Failing(tiny, min_mass=0.0).judge([Item(prompt, "r")])


def test_a_reward_is_the_share_of_its_range_and_refuses_a_judge_without_one(tiny: Engine) -> None:
    group = [Group("2 + 2?", ("4", "five"))]
    scores = [verdict.score or 0.0 for verdict in Homework(tiny, min_mass=0.0).judge([Item("2 + 2?", "4")])]
    assert JudgeReward(Homework(tiny, min_mass=0.0)).score_groups(group)[0].rewards[0] == pytest.approx(scores[0] / 9)
    with pytest.raises(AdjudgeError, match=r'Unranged declares no range, .* write range = .* or choose scale="own"'):
        JudgeReward(Unranged(tiny))
    assert JudgeReward(Unranged(tiny, min_mass=0.0), scale="own").score_groups(group)[0].rewards == (3.0, 3.0)
    boundless = JudgeReward(Boundless(tiny, min_mass=0.0))
    assert boundless.score_groups(group)[0].rewards == (3.0, 3.0) and boundless.below_zero


@pytest.mark.parametrize("scale", ["unit", "own"])
@pytest.mark.parametrize("ends", [(1.0, 1.0), (5.0, 1.0), "1-5", (1.0,), 5, ("1", "5"), (0.0, math.nan), (False, True)])
def test_a_range_that_is_none_is_refused_before_anything_is_scored(tiny: Engine, ends: Any, scale: Any) -> None:
    class Ranged(Homework):
        range = ends

    with pytest.raises(AdjudgeError, match=r"the range of Ranged is .*: write range = \(lowest, highest\)"):
        JudgeReward(Ranged(tiny), scale=scale)


@pytest.mark.parametrize("ends", [(1, 5), [1.0, 5.0], (0.0, math.inf), (-math.inf, math.inf)])
def test_a_range_may_have_whole_numbers_and_no_bounds(tiny: Engine, ends: Any) -> None:
    class Ranged(Homework):
        range = ends

    assert JudgeReward(Ranged(tiny, min_mass=0.0))(["p"], ["r"])[0] is not None


def test_a_judge_derived_from_another_keeps_its_range_unless_it_asks_otherwise(tiny: Engine) -> None:
    class Plain(PointwiseJudge):
        def __init__(self, engine: Any, **how: Any) -> None:
            super().__init__(engine, "wit=Is it funny?", **how)

    class Tenths(PointwiseJudge):
        def _questions(self, item: Item) -> Any:
            return super()._questions(item)

    class Declared(Tenths):
        range = (0.0, 10.0)

    assert (Plain.range, Tenths.range, Declared.range) == ((1.0, 5.0), None, (0.0, 10.0))
    assert PrincipleJudge.range == (0.0, 1.0)
    JudgeReward(Plain(tiny))
    with pytest.raises(AdjudgeError, match="Tenths declares no range"):
        JudgeReward(Tenths(tiny))


def test_a_class_beside_a_judge_that_concludes_otherwise_leaves_it_without_its_range(tiny: Engine) -> None:
    class Hundred:
        def score_of(self, parts: Any) -> float:
            return 100.0

    class Percent(Hundred):
        range = (0.0, 100.0)

    class Mixed(Hundred, Homework):
        pass

    class Again(Mixed):
        range = (0.0, 100.0)

    class Ranged(Percent, Homework):
        pass

    class Later(Ranged):
        def questions(self, item: Item) -> Sequence[Worded]:
            return super().questions(item)[:1]

    class Both(Lowest, Again):
        pass

    assert (Mixed.range, Again.range, Both.range) == (None, (0.0, 100.0), (0.0, 9.0))
    assert (Ranged.range, Later.range) == ((0.0, 100.0), None)
    with pytest.raises(AdjudgeError, match="Mixed declares no range"):
        JudgeReward(Mixed(tiny))
    assert JudgeReward(Again(tiny, min_mass=0.0))(["p"], ["r"]) == [1.0]


def test_a_judge_of_ones_own_with_the_name_of_another_kind_is_its_authors_own(tiny: Engine) -> None:
    for name in ("pairwise", "rubric", "personal", "scalar"):
        made: Any = type(name, (Homework,), {"range": (0.0, 9.0)})
        judge = made(tiny, min_mass=0.0)
        assert kind_name(made) is None and kind_name(judge) is None and JudgeSource(judge).kind is None
        assert JudgeReward(judge)(["p"], ["r"]) == JudgeReward(Homework(tiny, min_mass=0.0))(["p"], ["r"])


@pytest.mark.parametrize(
    ("judge", "message"),
    [
        (lambda tiny: tiny, r"which is no open judge: give a judge on it, as PointwiseJudge\(engine\)"),
        (lambda tiny: PointwiseJudge, r"which is no open judge: open it, as PointwiseJudge\(engine\)"),
        (lambda tiny: len, r"which is no open judge: derive its class from OwnJudge, or give FunctionReward"),
        (lambda tiny: None, "which is no open judge"),
    ],
)
def test_a_reward_refuses_what_is_no_judge(tiny: Engine, judge: Any, message: str) -> None:
    with pytest.raises(AdjudgeError, match=message):
        JudgeReward(judge(tiny))


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
    read = kind_of(f"{module}:Reading").subject(row, 1, {})
    for item in (seen[0], read):
        assert (item.reference, item.genre, item.task) == ("ref", "tale", "guide")
        assert item.reviews == (Review("A plot.", "", 3.0),)
        assert item.rubric is not None and [one.name for one in item.rubric.criteria] == ["wit"]
    with pytest.raises(
        AdjudgeError, match='line 1: "task" is "math": write completion or guide or open, or leave it out'
    ):
        kind_of(f"{module}:Reading").subject(Row("line 1", {"prompt": "p", "response": "r", "task": "math"}), 1, {})
    other = kind_of(f"{module}:Short").subject(Row("line 1", {"prompt": "p", "response": "r", "task": "math"}), 1, {})
    assert other == Item("p", "r", id=other.id), "columns that it does not read may be anything"
    with pytest.raises(AdjudgeError, match='Wrong.reads has "tone": give a tuple, of rubric, reviews, genre, task'):
        type("Wrong", (Homework,), {"reads": ("rubric", "tone")})
    with pytest.raises(AdjudgeError, match='Wrong.reads has "rubric": give a tuple'):
        type("Wrong", (Homework,), {"reads": "rubric"})


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
        (Homework, r'give its name, as JudgeSpec\("tests.rewards.judges.test_own:Homework"\)'),
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
