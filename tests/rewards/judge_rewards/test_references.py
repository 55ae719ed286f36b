from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from adjudge.engine.absent import AbsentEngine, Card, ModelNeeded
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.sampling import Sampling
from adjudge.engine.waiting import answered_by
from adjudge.rewards.engines.specification import EngineSpec, JudgeSpec, engines_open, without_models
from adjudge.rewards.journal import Journal
from adjudge.rewards.judge_rewards.judge_reward import JudgeReward
from adjudge.rewards.judge_rewards.references import DynamicReference, Referenced, StaticReference
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.grouping import group_of, grouped, samples_of
from adjudge.rewards.records.rows import Row
from adjudge.training.prompts import asked
from adjudge.training.recipe import Data
from tests.engine.remote.peer import Peer
from tests.rewards.scripted import ScriptedEngine

SHORT = Sampling(max_tokens=6, temperature=1.0)
DATA: list[dict[str, Any]] = [{}, {"system": "Be brief."}, {"chat": False}]


def as_trainers_see(prompt: Any) -> list[Group]:
    """A group of one prompt, by the reward itself and by the adapters for trainers."""
    own = grouped([prompt] * 2, ["a", "b"], {})
    return [*own, group_of(samples_of([prompt] * 2, ["a", "b"], {}))]


@pytest.mark.parametrize("how", DATA)
def test_the_base_model_is_asked_what_the_policy_is_asked(tiny: Engine, how: dict[str, Any]) -> None:
    data = Data(prompts=("Tell one.",), **how)
    prompt, inner = asked(Row("row 1", {"prompt": "Tell one."}), data), tiny.tokenizer.inner
    if isinstance(prompt, str):
        policys = inner(prompt)["input_ids"]
    else:
        policys = inner.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)["input_ids"]
    for group in as_trainers_see(prompt):
        engine = ScriptedEngine(tiny, lambda shown, before: "A tale.")
        assert DynamicReference(engine, SHORT, chat=data.chat).of([group]) == [Referenced("A tale.")]
        assert engine.asked == [inner.decode(policys)]


def test_a_models_name_stands_for_its_engine() -> None:
    reference = DynamicReference("dummy:tiny-llama", SHORT)
    assert reference.spec == EngineSpec("dummy:tiny-llama") and reference.engines == ()
    assert JudgeReward(JudgeSpec("pairwise"), reference=reference).reference is reference


def test_what_references_cannot_be_written_with_is_refused_at_once() -> None:
    anything: Any = {"model": "house"}
    with pytest.raises(AdjudgeError, match="engine is {'model': 'house'}: give an open one"):
        DynamicReference(anything)
    with pytest.raises(AdjudgeError, match="sampling is {'model': 'house'}: give it as Sampling"):
        DynamicReference("house", anything)
    with pytest.raises(AdjudgeError, match="attempts is 0: give at least 1"):
        DynamicReference("house", attempts=0)


def test_a_deadline_leaves_the_text_whole_that_is_written_once(tiny: Engine) -> None:
    [group, _] = as_trainers_see("Tell one.")
    reference = DynamicReference(tiny, SHORT)
    with answered_by(0.0):
        [late] = tiny.generate(["Tell one."], SHORT)
        [written] = reference.of([group])
    assert late.finish_reason == "timeout" and written == DynamicReference(tiny, SHORT).of([group])[0]


def test_what_is_prepared_is_what_a_step_finds_with_and_without_turns(tiny: Engine) -> None:
    prompts: list[Any] = [
        "Tell one.",
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Two."}],
    ]
    engine, told = ScriptedEngine(tiny, lambda shown, before: "A tale."), list[str]()
    reference = DynamicReference(engine, SHORT)
    reference.prepare(prompts, each=lambda: told.append("one more"))
    assert len(engine.asked) == len(told) == 2
    groups = [*grouped(prompts, ["a", "b"], {}), *(group for one in prompts for group in as_trainers_see(one))]
    assert {one.text for one in reference.of(groups)} == {"A tale."} and len(engine.asked) == 2
    with pytest.raises(AdjudgeError, match=r"prompts\[1\] is int: give a string, or messages"):
        reference.prepare(["Tell one.", 7])  # type: ignore[list-item]


def test_other_turns_are_other_references_and_a_lone_users_turn_is_the_prompt(tiny: Engine) -> None:
    user, system = {"role": "user", "content": "Tell one."}, {"role": "system", "content": "Be brief."}
    prompts: list[Any] = [[user], [system, user], [user, {"role": "assistant", "content": "Once"}]]
    groups = [as_trainers_see(prompt)[0] for prompt in prompts]
    reference = DynamicReference(tiny, SHORT)
    texts = [one.text for one in reference.of([*groups, Group("Tell one.", ("a",))])]
    assert texts[0] == texts[3] and len(set(texts[:3])) == 3
    keys = {reference.key(group) for group in groups}
    plain = DynamicReference(tiny, SHORT, chat=False)
    assert len(keys | {reference.key(Group("Tell one.", ())), plain.key(Group("Tell one.", ()))}) == 5


def test_an_answer_that_is_begun_is_continued_and_unknown_roles_abstain(tiny: Engine) -> None:
    user = {"role": "user", "content": "Tell one."}
    engine = ScriptedEngine(tiny, lambda shown, before: "A tale.")
    [begun, _] = as_trainers_see([user, {"role": "assistant", "content": "Once <|im_end|>"}])
    tool, alone = as_trainers_see([user, {"role": "tool", "content": "4"}])[0], Group("x", ("a",), None, "", {}, ())
    lone = as_trainers_see([{"role": "assistant", "content": "Once"}])[0]
    found = DynamicReference(engine, SHORT).of([begun, tool, lone, alone])
    assert [one.abstained for one in found] == [None, "unsupported", "unsupported", None]
    assert len(engine.asked) == 2 and engine.asked[0].endswith("assistant\nOnce <|im_end|>")
    assert tiny.tokenizer.inner.convert_tokens_to_ids("<|im_end|>") is not None


def test_a_text_that_does_not_fit_is_not_cut_where_it_would_be_continued(tiny: Engine) -> None:
    plain = DynamicReference(tiny, SHORT, chat=False)
    [one] = plain.of([Group("word " * 20_000, ("a",))])
    assert one == Referenced(None, "too_long")


def test_processes_that_write_at_once_all_use_the_text_that_is_kept(tiny: Engine, tmp_path: Path) -> None:
    """The other process ends its text while this one still writes."""
    group = Group("Tell one.", ("a",))

    def meanwhile(shown: str, before: int) -> str:
        other = ScriptedEngine(tiny, lambda shown, before: "The other's tale.")
        with Journal(tmp_path / "j") as theirs:
            assert DynamicReference(other, SHORT).of([group], theirs) == [Referenced("The other's tale.")]
        return "A tale."

    with Journal(tmp_path / "j") as journal:
        reference = DynamicReference(ScriptedEngine(tiny, meanwhile), SHORT)
        assert reference.of([group], journal) == [Referenced("The other's tale.")]
        assert reference.of([group], journal) == [Referenced("The other's tale.")] and len(journal) == 1


def test_references_come_again_from_the_journal_without_a_model(tmp_path: Path) -> None:
    spec = EngineSpec("dummy:tiny-llama", kv_cache_gb=0.07)
    groups = [Group("Tell one.", ("a",)), Group("Tell two.", ("b",))]
    with Journal(tmp_path / "j") as journal:
        reference = DynamicReference(spec, SHORT)
        texts = reference.of(groups, journal)
        opened = engines_open(reference.engines)
        with without_models({known: AbsentEngine(Card.of(engine)) for known, engine in opened.items()}):
            again = DynamicReference(spec, SHORT)
            assert again.of(groups, journal) == texts and isinstance(again.engine, AbsentEngine)
            with pytest.raises(ModelNeeded):
                DynamicReference(spec, SHORT, seed=1).of(groups, journal)
            with pytest.raises(AdjudgeError, match="no judge was house in this run"):
                EngineSpec().open()
        assert DynamicReference(spec, SHORT).engine is reference.engine


def test_a_base_model_that_another_reward_has_put_to_sleep_is_woken() -> None:
    reference = DynamicReference(EngineSpec("dummy:tiny-llama", kv_cache_gb=0.08), SHORT)
    first, second = Group("Tell one.", ("a",)), Group("Tell two.", ("b",))
    known = reference.of([first])
    reference.engines[0].sleep()  # type: ignore[attr-defined]
    assert reference.of([first, second])[:1] == known
    assert not reference.engines[0].asleep  # type: ignore[attr-defined]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork_a_reference_opens_an_engine_of_its_own() -> None:
    peer = Peer("vllm", Engine("dummy:tiny-llama", kv_cache_gb=0.05))
    reference = DynamicReference(EngineSpec(url=peer.url, tokenizer="dummy:tiny-llama"), SHORT)
    engine, group = reference.engine, Group("Tell one.", ("a",))
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            assert not reference.engines and reference.engine is not engine
            [written] = reference.of([group])
            os.write(write, str(written.text).encode())
        finally:
            os._exit(0)
    os.close(write)
    text = os.read(read, 1000).decode()
    os.waitpid(child, 0)
    assert text and reference.of([group]) == [Referenced(text)] and reference.engines == (engine,)
    peer.close()


def test_why_a_text_could_not_be_written_is_kept_like_a_text_unless_it_lay_in_the_moment(
    tiny: Engine, tmp_path: Path
) -> None:
    said = {"one": "A tale.", "two": " \n", "late": ("", "timeout")}
    engine = ScriptedEngine(tiny, lambda shown, before: next(said[name] for name in said if f"Tell {name}." in shown))
    groups = [Group(f"Tell {name}.", ("a",)) for name in said]
    groups.append(as_trainers_see([{"role": "user", "content": "Hi."}, {"role": "tool", "content": "4"}])[0])
    expected = [Referenced("A tale."), *(Referenced(None, why) for why in ("unparsable", "timeout", "unsupported"))]  # type: ignore[arg-type]
    with Journal(tmp_path / "j") as journal:
        reference = DynamicReference(engine, SHORT, attempts=3)
        assert reference.of(groups, journal) == expected and len(engine.asked) == 5
        assert reference.of(groups, journal) == expected and len(engine.asked) == 6
        assert len(journal) == 2
        silent = ScriptedEngine(tiny, lambda shown, before: pytest.fail("asked again"))
        kept = [*groups[:2], groups[3]]
        assert DynamicReference(silent, SHORT).of(kept, journal) == [*expected[:2], expected[3]]


def test_a_reference_of_another_column_is_one_for_the_whole_group_or_a_mistake() -> None:
    with pytest.raises(AdjudgeError, match='prompt "p": the responses differ in "human", of which one value is read'):
        StaticReference("human").of([Group("p", ("a", "b"), by_response={"human": ["x", "y"]})])
