from __future__ import annotations

from typing import Any

import numpy as np

from adjudge.engine.completion import Completion
from adjudge.engine.engine import Engine
from adjudge.engine.sampling import Sampling
from adjudge.engine.text.prompt import Prompt
from adjudge.rewards.journal import Journal
from adjudge.training.kept_engine import KeptEngine
from tests.rewards.debating import GOOD, Rulings

TASK = "Your part is to rule: "
SHORT = Sampling(max_tokens=8, temperature=1.0)


def prompts(*texts: str) -> list[Prompt]:
    return [Prompt.template(TASK + text) for text in texts]


def test_texts_and_scores_that_are_kept_are_not_asked_for_again(tiny: Engine, book: Journal) -> None:
    first, second = (Rulings(tiny, lambda agent, shown: 0.75, lambda shown, before: shown[-1]) for _ in range(2))
    whole: list[Any] = []
    for engine, texts in ((first, ("a", "b")), (second, ("b", "c", "a"))):
        kept = KeptEngine(engine, book)
        whole.append((kept.generate(prompts(*texts), SHORT, seeds=[ord(text) for text in texts]),))
        whole[-1] += (kept.score(prompts(*texts), GOOD),)
    assert [shown[-1] for shown in second.asked] == ["c"] and [shown[-1] for shown in second.scored] == ["c"]
    assert [text.text for text in whole[1][0]] == ["b", "c", "a"] and whole[1][1][0] == whole[0][1][1]
    assert [text.prompt for text in whole[1][0]] == [0, 1, 2]
    assert (kept.asked, kept.remembered) == (2, 4)


def test_without_a_journal_nothing_is_remembered(tiny: Engine) -> None:
    kept = KeptEngine(Rulings(tiny, lambda agent, shown: 0.75, lambda shown, before: str(before)), None)
    found = [[text.text for text in kept.generate(prompts("a", "a"), SHORT, seeds=[1, 1])] for _ in range(2)]
    assert found == [["0", "0"], ["1", "1"]] and (kept.asked, kept.remembered) == (2, 0)


def test_a_text_that_no_journal_could_hold_is_mended(tiny: Engine, book: Journal) -> None:
    engine = Rulings(tiny, lambda agent, shown: 0.75, lambda shown, before: "x")
    engine.generate_iter = lambda *_, **how: iter([(0, Completion(0, 0, "a\ud800", (), "stop"))])  # type: ignore[method-assign]
    for _ in range(2):
        [text] = KeptEngine(engine, book).generate(prompts("a"), SHORT, seeds=[1])
        assert text.text == "a\ufffd"


def test_labels_in_a_list_are_one_set_for_all_prompts(tiny: Engine, book: Journal) -> None:
    kept = KeptEngine(tiny, book)
    kept.score(["a:"], ["Yes", "No"])
    scores = kept.score(["a:", "c:"], ["Yes", "No"])
    assert scores == tiny.score(["a:", "c:"], ["Yes", "No"])


def test_an_engine_whose_weights_change_is_asked_again(tiny: Engine, book: Journal) -> None:
    engine = Engine("dummy:tiny-llama", kv_cache_gb=0.01)
    kept = KeptEngine(engine, book)
    before = kept.score(["a:"], ["Yes", "No"])
    name, weights = next((name, one) for name, one in engine.runner.model.named_parameters() if "down_proj" in name)
    engine.update_weights({name: 2 * weights.detach().clone()})
    assert kept.fingerprint == engine.fingerprint
    assert kept.score(["a:"], ["Yes", "No"]) == engine.score(["a:"], ["Yes", "No"]) != before


def test_embeddings_that_are_kept_are_not_computed_again(tiny: Engine, book: Journal) -> None:
    kept = KeptEngine(tiny, book)
    first = kept.embed(prompts("a", "b"))
    computed = tiny.stats.tokens_computed
    again = kept.embed(prompts("b", "a"))
    assert tiny.stats.tokens_computed == computed
    for one, same in zip(first, again[::-1], strict=True):
        assert one.values is not None and one.values.any() and np.array_equal(one.values, same.values)
        assert (one.reason, one.prompt_tokens) == (same.reason, same.prompt_tokens)
    kept.embed(prompts("c"))
    assert tiny.stats.tokens_computed > computed


def test_equal_questions_of_one_call_are_asked_once(tiny: Engine, book: Journal) -> None:
    engine = Rulings(tiny, lambda agent, shown: 0.75, lambda shown, before: f"{shown[-1]}{before}")
    kept = KeptEngine(engine, book)
    texts = kept.generate(prompts("a", "b", "a"), SHORT, seeds=[1, 1, 1])
    assert [(text.prompt, text.text) for text in texts] == [(0, "a0"), (1, "b0"), (2, "a0")]
    kept.score(prompts("a", "a"), GOOD)
    assert len(engine.asked) == 2 and len(engine.scored) == 1


def test_another_seed_another_sampling_and_other_labels_are_other_questions(tiny: Engine, book: Journal) -> None:
    engine = Rulings(tiny, lambda agent, shown: 0.75, lambda shown, before: "x")
    kept = KeptEngine(engine, book)
    for sampling, seed in ((SHORT, 1), (SHORT, 2), (Sampling(max_tokens=9, temperature=1.0), 1), (SHORT, 1)):
        kept.generate(prompts("a"), sampling, seeds=[seed])
    assert len(engine.asked) == 3


def test_what_lies_in_the_moment_is_asked_for_again(tiny: Engine, book: Journal) -> None:
    engine = Rulings(tiny, None, lambda shown, before: ("", "timeout") if before == 0 else "x")
    kept = KeptEngine(engine, book)
    ended = [kept.generate(prompts("a"), SHORT, seeds=[1])[0].finish_reason for _ in range(3)]
    assert ended == ["timeout", "stop", "stop"] and len(engine.asked) == 2
