from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from adjudge.engine.absent import AbsentEngine, Card
from adjudge.engine.embedding import Embedding
from adjudge.engine.engine import Engine
from adjudge.engine.errors import AdjudgeError, EngineFailed
from adjudge.engine.waiting import answered_by
from adjudge.rewards.judges.retrieval import EngineEmbedder, Index, Retrieved
from adjudge.rewards.records.verdict import Example
from tests.rewards.scripted import ScriptedEngine

TINY = "dummy:tiny-llama"
POINTS = {"east": (1.0, 0.0), "north": (0.0, 2.0), "west": (-3.0, 0.0), "northeast": (1.0, 1.0)}
ASK = {**POINTS, "nearly north": (0.1, 1.0), "nowhere": (math.nan, 0.0), "zero": (0.0, 0.0)}


def compass(texts: Sequence[str]) -> list[tuple[float, float]]:
    """An embedder of texts by the direction they name."""
    return [ASK[text] for text in texts]


def examples(*prompts: str) -> list[Example]:
    return [Example(prompt, f"{prompt} {number}") for number, prompt in enumerate(prompts)]


def responses(found: Retrieved) -> list[str]:
    return [example.response for example in found.examples]


def test_examples_come_by_the_cosine_of_their_prompts_nearest_first() -> None:
    index = Index(examples(*POINTS), compass)
    [found] = index.nearest(["nearly north"], ["?"], 4)
    assert responses(found) == ["north 1", "northeast 3", "east 0", "west 2"]
    assert [len(index.nearest(["east"], ["?"], k)[0].examples) for k in (1, 3, 9)] == [1, 3, 4]


def test_equally_near_examples_come_in_their_own_order() -> None:
    index = Index(examples("north", "east", "east", "north", "east"), compass)
    [found] = index.nearest(["northeast"], ["?"], 5)
    assert responses(found) == ["north 0", "north 3", "east 1", "east 2", "east 4"]


def test_ties_do_not_hang_on_where_a_row_stands() -> None:
    """A matrix product may sum rows at the edge of a block in another order, and not every sort keeps equals apart."""
    generator = np.random.default_rng(0)
    query, *three = generator.normal(size=(4, 577))
    three.sort(key=lambda row: -(row @ query) / np.linalg.norm(row))
    names = list(map(str, range(299)))
    index = Index(examples(*names), lambda texts: [query if text == "?" else three[int(text) % 3] for text in texts])
    [found] = index.nearest(["?"], [""], 299)
    assert [example.prompt for example in found.examples] == [*names[::3], *names[1::3], *names[2::3]]


def test_a_text_is_never_retrieved_for_itself_however_often_it_is_there() -> None:
    own = [Example("north", "mine "), *[Example("north", "mine")] * 9]
    index = Index([*own, Example("east", "theirs"), Example("west", "mine")], compass)
    for k in (1, 2):
        [found] = index.nearest(["north"], [" mine\n"], k)
        assert responses(found) == ["theirs"]
    [found] = Index(own, compass).nearest(["north"], ["mine"], 2)
    assert found == Retrieved()


def test_what_is_found_does_not_depend_on_company() -> None:
    index = Index(examples(*POINTS), compass)
    prompts = ["north", "east", "north", "nowhere"]
    together = index.nearest(prompts, ["a", "east 0", "north 1", "b"], 2)
    alone = [index.nearest([p], [r], 2)[0] for p, r in zip(prompts, ["a", "east 0", "north 1", "b"], strict=True)]
    assert together == alone and together[0] != together[2]


def test_each_different_prompt_is_embedded_once() -> None:
    asked: list[list[str]] = []

    def embed(texts: Sequence[str]) -> list[tuple[float, float]]:
        asked.append(list(texts))
        return compass(texts)

    index = Index(examples("east", "north", "east"), embed)
    index.nearest(["north", "north"], ["a", "b"], 1)
    index.nearest(["west"], ["a"], 1)
    assert asked == [["east", "north"], ["north"], ["west"]]


def test_an_example_without_an_embedding_is_left_out_and_counted() -> None:
    index = Index(examples("nowhere", "east", "zero", "nowhere"), compass)
    assert responses(index.nearest(["east"], ["?"], 4)[0]) == ["east 1"] and index.left_out == 3


@pytest.mark.parametrize("prompt", ["nowhere", "zero"])
def test_a_prompt_without_an_embedding_finds_nothing_and_says_why(prompt: str) -> None:
    assert Index(examples("east"), compass).nearest([prompt], ["?"], 1) == [Retrieved((), "non_finite")]


def test_an_embedders_own_reason_is_kept() -> None:
    def embed(texts: Sequence[str]) -> list[Embedding]:
        return [Embedding(None, "too_long") if text == "?" else Embedding(np.ones(2, np.float32)) for text in texts]

    assert Index(examples("east"), embed).nearest(["?"], [""], 1) == [Retrieved((), "too_long")]


def test_arrays_are_taken_too_and_not_changed() -> None:
    rows = np.array([[3.0, 4.0]])
    index = Index(examples("east"), lambda texts: np.repeat(rows, len(texts), 0))
    assert responses(index.nearest(["north"], ["?"], 1)[0]) == ["east 0"]
    assert rows.tolist() == [[3.0, 4.0]] and rows.flags.writeable


@pytest.mark.parametrize(
    ("embed", "reason"),
    [
        (lambda texts: [1.0] * len(texts), "array of shape"),
        (lambda texts: [[1.0, 2.0]] * (len(texts) + 1), "3 rows for 2 texts"),
        (lambda texts: [[1.0], [1.0, 2.0]], "several lengths"),
        (lambda texts: None, "array of shape"),
        (lambda texts: [[math.nan]] * len(texts), r"not one of the 2 examples could be embedded \(non_finite\): give"),
        (lambda texts: [Embedding(None, "timeout")] * len(texts), r"\(timeout\): try again once the server answers"),
    ],
)
def test_an_embedder_that_gives_something_else_is_one_sentence(embed: Any, reason: str) -> None:
    with pytest.raises(AdjudgeError, match=reason):
        _ = Index(examples("east", "north"), embed).content


def test_no_examples_are_a_mistake() -> None:
    with pytest.raises(AdjudgeError, match="no examples"):
        Index([], compass)
    with pytest.raises(AdjudgeError, match=r"'east' is no Example: give Example\(…\) objects"):
        Index(["east"], compass)  # type: ignore[list-item]


def test_the_content_changes_with_examples_and_numbers() -> None:
    class Named:
        content = "compass 2"
        __call__ = staticmethod(compass)

    contents = [
        Index(examples("east", "north"), compass).content,
        Index(examples("north", "east"), compass).content,
        Index([Example("east", "other"), Example("north", "north 1")], compass).content,
        Index(examples("east", "north"), lambda texts: [ASK[text][::-1] for text in texts]).content,
        Index(examples("east", "north"), Named()).content,
    ]
    assert len(set(contents)) == len(contents)
    assert Index(examples("east", "north"), compass).content == contents[0]


# ---- the engine's own hidden states


def test_an_index_is_made_whole_whatever_time_a_call_has(tiny: Engine) -> None:
    index = Index(examples(*POINTS), EngineEmbedder(tiny))
    with answered_by(time.monotonic() - 1):
        assert index.left_out == 0


def test_examples_that_are_not_embedded_for_the_moment_are_not_lost() -> None:
    waits = ["east"]

    def embed(texts: Sequence[str]) -> list[Embedding]:
        return [
            Embedding(None, "timeout") if text in waits else Embedding.of(np.array([1.0, 2.0]), 0) for text in texts
        ]

    index = Index(examples("east", "north"), embed)
    with pytest.raises(EngineFailed, match="1 of the 2 prompts of examples could not be embedded"):
        index.nearest(["north"], ["?"], 2)
    waits.clear()
    assert len(index.nearest(["north"], ["?"], 2)[0].examples) == 2


def test_the_engine_embeds_each_text_by_itself_where_it_would_say_one_word(tiny: Engine) -> None:
    embed = EngineEmbedder(tiny)
    texts = ["A wedding.", "A funeral <|im_end|>.", "long " * 3000]
    together = embed(texts)
    for text, embedding in zip(texts, together, strict=True):
        [alone] = embed([text])
        assert embedding.values is not None and np.array_equal(embedding.values, alone.values)
    messages, answer = embed.template.render(data={"text": texts[1]})
    prompt = tiny.chat(messages, answer)
    assert tiny.tokenizer.decode(tiny.tokenizer.prompt(prompt)).endswith('assistant\nIn one word: "')
    assert [segment.text for segment in prompt.segments if not segment.trusted] == [texts[1]]
    [direct] = tiny.embed([prompt])
    assert np.array_equal(together[1].values, direct.values)


def test_an_index_on_the_engine_finds_the_same_prompt_first(tiny: Engine) -> None:
    index = Index(examples("A wedding.", "An exam.", "A new house."), EngineEmbedder(tiny))
    assert [responses(found)[0] for found in index.nearest(["An exam.", "A wedding."], ["", ""], 2)] == [
        "An exam. 1",
        "A wedding. 0",
    ]


def test_an_index_is_made_again_when_its_embedder_has_changed() -> None:
    """An engine's weights may be updated: old rows beside new ones would be near to nothing."""

    class Turning:
        content, turned = "before", 1

        def __call__(self, texts: Sequence[str]) -> list[tuple[float, ...]]:
            return [ASK[text][:: self.turned] for text in texts]

    embed = Turning()
    index = Index(examples("east", "nearly north"), embed)
    before = index.content, index.nearest(["east"], ["?"], 1)
    embed.content, embed.turned = "after", -1
    assert index.content != before[0] and index.nearest(["east"], ["?"], 1) == before[1]


def test_the_engines_content_follows_its_weights(tiny: Engine) -> None:
    engine = AbsentEngine(Card.of(tiny))
    embed = EngineEmbedder(engine)
    before = embed.content
    engine.fingerprint = "other weights"
    assert embed.content != before


def test_embedders_of_other_models_or_languages_have_other_contents(tiny: Engine) -> None:
    embedders = [EngineEmbedder(tiny), EngineEmbedder(tiny, "zh"), EngineEmbedder(Engine("dummy:tiny-qwen3"))]
    assert len({embedder.content for embedder in embedders}) == 3


def test_an_engine_without_hidden_states_is_refused_at_once(tiny: Engine) -> None:
    with pytest.raises(AdjudgeError, match="scripted hands out no hidden states"):
        EngineEmbedder(ScriptedEngine(tiny, lambda shown, before: ""))
