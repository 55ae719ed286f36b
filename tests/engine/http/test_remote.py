"""`RemoteEngine` on this server: what goes over the wire loses nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from adjudge.engine.async_engine import AsyncEngine
from adjudge.engine.engine import Engine
from adjudge.engine.errors import RemoteError
from adjudge.engine.http.limits import Limits
from adjudge.engine.remote.remote_engine import RemoteEngine
from adjudge.engine.sampling import Sampling
from adjudge.engine.text.labels import Labels
from adjudge.rewards.judges.debate import DebateJudge
from adjudge.rewards.judges.kinds import KINDS, prepare
from adjudge.rewards.judges.pairwise import PairwiseJudge
from adjudge.rewards.judges.retrieval import Index
from adjudge.rewards.judges.rubric_judge import RubricJudge
from adjudge.rewards.judges.tree import TreeJudge
from adjudge.rewards.records.rows import Row
from adjudge.rewards.records.rubric import Criterion, Level, Rubric
from adjudge.rewards.records.verdict import Example, Item, Pair
from tests.engine.http.serving import MODEL, Served, served, wait_until_idle
from tests.engine.text.schemas import IMPOSSIBLE
from tests.engine.tiny import plain_prompts

LABEL_SETS = (["1", "2", "3"], Labels(("1", "10", "2"), terminator=" </ANSWER>"), ["yes", "no", "perhaps"])


@pytest.fixture(scope="module")
def remote(site: Served) -> Iterator[RemoteEngine]:
    with RemoteEngine(site.url) as remote:
        yield remote


@pytest.mark.parametrize("labels", LABEL_SETS)
def test_scores_are_the_engines_own(site: Served, remote: RemoteEngine, labels: Any) -> None:
    prompts = [*plain_prompts(20), "<|im_end|>", "x" * 5000]
    assert remote.score(prompts, labels) == site.engine.face.score(prompts, labels)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": 0.9, "seed": 3, "n": 2, "top_p": 0.9, "min_p": 0.01},
        {"seed": 3, "stop": ["a", "e"]},
        {"seed": 3, "choices": ["yes", "no"]},
        {"seed": 3, "logprobs": 2},
        {"seed": 3, "logprobs": 1, "prompt_logprobs": 3, "n": 2},
    ],
)
def test_texts_are_the_engines_own(site: Served, remote: RemoteEngine, options: dict[str, Any]) -> None:
    prompts = plain_prompts(3)
    options = {"max_tokens": 12, **options}
    assert remote.generate(prompts, **options) == site.engine.face.generate(prompts, **options)


FORMS: tuple[dict[str, Any], ...] = (
    {},
    {"choices": ["a.b", "ab", "xyz}"]},
    {"regex": "[a-c]{3,9}"},
    {"allowed_token_ids": [258, 256, 97]},
    {"json_schema": {"type": "object", "properties": {"a": {"enum": [1, 22]}}, "required": ["a"]}},
)


def test_texts_of_any_form_cut_by_any_stop_string_are_the_engines_own(site: Served, remote: RemoteEngine) -> None:
    dice = random.Random(3)
    ends: set[tuple[bool, str]] = set()
    for _ in range(40):
        form = dice.choice(FORMS)
        how: dict[str, Any] = {"n": 3, "max_tokens": dice.randint(1, 12), "seed": dice.randrange(99), **form}
        how |= {"ignore_eos": dice.random() < 0.5, "stop": dice.sample(["a", "ab", "}", '"', ".", "1"], 3)}
        texts = remote.generate(["x"], **how)
        assert texts == site.engine.face.generate(["x"], **how), how
        ends |= {(bool(form), text.finish_reason) for text in texts}
    assert {(True, "length"), (True, "stop"), (False, "stop")} <= ends


def test_a_text_that_ends_without_its_form_is_the_engines_own(site: Served, remote: RemoteEngine) -> None:
    form = {"json_schema": IMPOSSIBLE, "seed": 0, "max_tokens": 60}
    assert remote.generate(["x"], **form) == site.engine.face.generate(["x"], **form)


def test_texts_that_are_asked_for_as_of_a_vllm_are_the_engines_own(site: Served) -> None:
    prompts, how = plain_prompts(3), {"max_tokens": 12, "seed": 3, "n": 2, "logprobs": 2, "prompt_logprobs": 1}
    with RemoteEngine(site.url, api="vllm", max_context=4096) as remote:
        assert remote.generate(prompts, **how) == site.engine.face.generate(prompts, **how)
        [long] = remote.generate(["x" * 3000])
        assert long.finish_reason == "cancelled"  # it fits the context that was stated: not the text is at fault


def test_more_prompts_than_the_server_answers_at_once(engine: AsyncEngine) -> None:
    with served(engine, Limits(max_answers=3)) as site, RemoteEngine(site.url) as remote:
        prompts = plain_prompts(10)
        assert remote.score(prompts, ["1", "2"]) == engine.face.score(prompts, ["1", "2"])
        for there, here in zip(remote.embed(prompts), engine.face.embed(prompts), strict=True):
            np.testing.assert_array_equal(there.values, here.values)


REVIEWS: dict[str, list[dict[str, Any]]] = {
    "personal": [{"plot": f"A lamp {n}.", "review": "Slow.", "score": 4 + n} for n in range(3)],
    "personal of pairs": [{"a": "A lamp.", "b": "A door.", "preferred": "b"}],
}
OPTIONS: dict[str, dict[str, Any]] = {
    "rubric": {"rubric": "six"},
    "debate": {"max_tokens": 8, "attempts": 1},
    "ensemble": {"partners": 1},
    "pairwise": {"aspects": "coherence"},
}


@pytest.mark.parametrize("name", [name for name in KINDS if name != "scalar"])  # that one asks a reward model
def test_every_judge_comes_to_the_same_verdicts(site: Served, remote: RemoteEngine, name: str) -> None:
    options = {"min_mass": 0.0, **OPTIONS.get(name, {})}
    texts = {"prompt": "Write.", "story_a": "A lamp, ten years dark.", "story_b": "<|im_end|> 5 </ANSWER>"}
    rows = [
        Row(f"row {n}", {**texts, "id": str(n), "response": f"A lamp {n}.", "reviews": REVIEWS.get(name)})
        for n in range(2)
    ]
    subjects, opened = KINDS[name].subjects(rows, options), prepare(name, options)
    here, there = (opened(engine, None) for engine in (site.engine.face, remote))
    verdicts = here.judge(subjects)
    assert there.judge(subjects) == verdicts
    assert name == "debate" or all(verdict.abstained is None for verdict in verdicts)
    assert [there.key(subject) for subject in subjects] == [here.key(subject) for subject in subjects]


def test_a_judge_comes_to_the_same_verdicts(site: Served, remote: RemoteEngine) -> None:
    pairs = [Pair(prompt="Write.", a=f"A lamp, {n} years dark.", b="<|im_end|> 5 </ANSWER>") for n in range(2)]
    here, there = (PairwiseJudge(engine) for engine in (site.engine.face, remote))
    assert there.compare(pairs) == here.compare(pairs)
    assert there.key(pairs[0]) == here.key(pairs[0])


def test_grades_of_several_tokens_and_in_words_are_the_same_from_afar(site: Served, remote: RemoteEngine) -> None:
    halves = tuple(Level(score, score, "?") for score in (0, 0.5, 1, 10))
    rubric = Rubric((Criterion("plot", "Does it hold?", levels=halves), Criterion("style", "Its own?", points=11)))
    items = [Item("Write.", f"A lamp, {n} years dark.") for n in range(2)]
    for scheme in ("free", "binary"):
        how: dict[str, Any] = {"scheme": scheme, "min_mass": 0.0}
        here, there = (RubricJudge(engine, rubric, **how) for engine in (site.engine.face, remote))
        assert there.judge(items) == here.judge(items)
        assert all(verdict.score for verdict in here.judge(items))


def test_a_tree_and_its_weights_come_to_the_same_verdicts(site: Served, remote: RemoteEngine) -> None:
    items = [Item(prompt="Write.", response=f"# A lamp\n\n{n} years dark.", task="completion") for n in range(2)]
    how: Any = {"weights": "generated", "attempts": 1, "without": ["instances"], "min_mass": 0}
    here, there = (TreeJudge(engine, **how) for engine in (site.engine.face, remote))
    assert there.judge(items) == here.judge(items)
    assert there.key(items[0]) == here.key(items[0])


def test_embeddings_are_the_engines_own(site: Served, remote: RemoteEngine) -> None:
    prompts = [*plain_prompts(70), "<|im_end|>", "x" * 5000]  # more than go into one request
    for there, here in zip(remote.embed(prompts), site.engine.face.embed(prompts), strict=True):
        assert (there.reason, there.prompt_tokens) == (here.reason, here.prompt_tokens)
        assert (there.values is None) == (here.values is None) == (here.reason == "too_long")
        assert there.values is None or (there.values.dtype == np.float32 and np.array_equal(there.values, here.values))


def test_a_debate_comes_to_the_same_verdicts_with_examples_found_on_the_server(
    site: Served, remote: RemoteEngine
) -> None:
    items = [Item(prompt=f"Greet {n}.", response=f"Hello {n}. <|im_end|>") for n in range(2)]
    examples = [Example(f"Wish {n}.", f"Sleep well, {n}.") for n in range(9)]
    how: dict[str, Any] = {"sampling": Sampling(max_tokens=12), "attempts": 20, "min_mass": 0.0}
    here, there = (DebateJudge(engine, examples, **how) for engine in (site.engine.face, remote))
    verdicts = there.judge(items)
    assert verdicts == here.judge(items) and any(verdict.score is not None for verdict in verdicts)
    assert all("Sleep well" in (verdict.analysis or {})["retrieval"][0] for verdict in verdicts)
    assert there.key(items[0]) == here.key(items[0])


def test_a_debate_takes_examples_found_by_another_embedder(site: Served, remote: RemoteEngine) -> None:
    items = [Item(prompt="Greet.", response=f"Hello {n}. <|im_end|>") for n in range(2)]
    how: dict[str, Any] = {"sampling": Sampling(max_tokens=12), "attempts": 20, "min_mass": 0.0}
    index = Index([Example("Wish.", "Sleep well.")], lambda texts: [[float(len(text))] for text in texts])
    here, there = (DebateJudge(engine, index, **how) for engine in (site.engine.face, remote))
    assert there.judge(items) == here.judge(items)


def other_weights(engine: Engine) -> None:
    engine.update_weights({"lm_head.weight": engine.runner.model.lm_head.weight * 2})


def another_adapter(engine: Engine) -> None:
    engine.adapter = "another"


@pytest.mark.parametrize("change", [other_weights, another_adapter])
def test_no_answer_of_other_weights_is_taken_for_one_of_those_it_opened_with(change: Callable[[Engine], None]) -> None:
    engine = AsyncEngine(Engine(MODEL, kv_cache_gb=0.05))
    with served(engine) as site, RemoteEngine(site.url) as remote:
        before = remote.score(["a"], ["1", "2"])
        engine.worker.between_steps(change).result(60)
        for ask in (
            lambda: remote.score(["a"], ["1", "2"]),
            lambda: remote.generate(["a"]),
            lambda: remote.embed(["a"]),
        ):
            with pytest.raises(RemoteError, match="other weights or another adapter than it had: open the judge again"):
                ask()
        with RemoteEngine(site.url) as again:
            assert (again.fingerprint, again.adapter) != (remote.fingerprint, remote.adapter)
            assert (again.score(["a"], ["1", "2"]) == before) == (change is another_adapter)
    engine.worker.close(drain=False)


def test_leaving_a_call_ends_it_on_the_server(site: Served, remote: RemoteEngine) -> None:
    texts = remote.generate_iter([[1] * 2040, "once"], max_tokens=1500, ignore_eos=True, seeds=[1, 2])
    place, text = next(texts)
    assert (place, text.finish_reason) == (0, "length")
    texts.close()
    wait_until_idle(site.engine)
    assert site.engine.engine.stats.steps < 1500
