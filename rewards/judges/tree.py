"""`TreeJudge`: a writing judged leaf by leaf, and its score added up a tree (Tree of Writing, HoWToBench)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, Unpack

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace
from adjudge.engine.score import PASSING, Reason
from adjudge.engine.text.written_scores import AnswerFormat
from adjudge.rewards.judges.asking import Answer, Question, check_writer
from adjudge.rewards.judges.headings import formatting_score
from adjudge.rewards.judges.judge import Concluded, How, ItemJudge, clean
from adjudge.rewards.judges.tree_nodes import (
    BY_RULE,
    IMPUTED,
    MISSING,
    TREE,
    Form,
    applying,
    checked_weights,
    checked_without,
    counts,
    equal_edges,
    imputed,
    is_fiction,
    labels_of,
    leaf_name,
    node_score,
    rescaled,
    root_score,
)
from adjudge.rewards.judges.tree_weights import Weighing, Weights, Wish, interleaved
from adjudge.rewards.records.verdict import Item, Part, Verdict, abstention


class TreeJudge(ItemJudge):
    """Scores writings on the leaves of a tree, 0..10 each, and adds the scores up to the root.

    The root stands over content, format and impression (`TREE`). Leaves are scored 1..10, beside the item's reference
    at 6 where it has one; paragraphing 1..3 as 5(x - 1); formatting by rule, see `formatting_score`. An item's `task`
    and `genre` say which leaves apply (a completion has no format; see `NOT_FOR`); `without` leaves out more, whole
    nodes or leaves by name. The verdict's `breakdown` has every node and leaf ("content", "content/emotion"), each with
    the weight of its edge to the one above it.

    Leaves are added up by `weights`: "equal" (default), those of a mapping from leaves to numbers, which are made to
    sum to 1 for each node, or "generated": the model writes them, once for each instruction (see `Weighing`), and where
    it fails to items abstain.

    `form` "fixed" (default): a node's score is the sum of its applying leaves' scores by their weights, the root's is
    the mean of the nodes' by their numbers of leaves; an item with a leaf that abstains, and weighs anything, abstains.
    "parity" is as published: (5 V_C + 3 V_F + V_I) / 9, or (5 V_C + V_I) / 6 for a completion, whatever the genre; a
    missing score becomes 5; of five content weights four are asked for, with any sum, and instances get the rest to 1;
    format leaves weigh the same. In both a node's weights that sum to less than `LEAST_SUM` of their sizes are refused.

    `how` is that of `AskingJudge`; `attempts` and `seed` are those of the weights too.
    """

    kind = "tree"
    range = (0.0, 10.0)
    answer_format = AnswerFormat(openings=("[[",), closings=("]]",), at_end=True)

    def __init__(
        self,
        engine: EngineFace,
        *,
        weights: Literal["equal", "generated"] | Mapping[str, float] = "equal",
        form: Form = "fixed",
        without: Iterable[str] = (),
        **how: Unpack[How],
    ) -> None:
        if form not in ("fixed", "parity"):
            raise AdjudgeError(f'form is "{form}": choose fixed or parity')
        if isinstance(weights, str) and weights not in ("equal", "generated"):
            raise AdjudgeError(f'weights is "{weights}": choose equal or generated, or give a number for each leaf')
        super().__init__(engine, **how)
        if weights == "generated":
            check_writer(engine)
        self.form = form
        self.without = checked_without(without)
        self.weights = weights if isinstance(weights, str) else checked_weights(weights, self.without)
        self.weighing = Weighing(
            engine,
            self.journal,
            lambda instruction, names: self._prompt({"prompt": instruction}, asked="weights", leaves=names),
            self._conditions,
            whole=form == "fixed",
            attempts=how.get("attempts", 3),
            seed=how.get("seed", 0),
        )

    def _conditions(self) -> dict[str, Any]:
        """What decides weights that are written, besides the instruction and the names."""
        return {
            **self.engine.content,
            "template": (self.template.hash, self.layout),
            "truncation": (self.cut, self.engine.max_prompt_tokens),
        }

    def _content(self, item: Item) -> dict[str, Any]:
        tree = self._tree(item)
        generated = self.weights == "generated"
        return {
            "form": self.form,
            "tree": [*tree.items()],
            "fiction": self._tells(item),
            "labels": [labels_of(path) for paths in tree.values() for path in paths],
            "weights": self.weighing.content if generated else self.weights,
            "prompt": item.prompt,
            "response": item.response,
            "reference": item.reference or None,
        }

    def _tree(self, item: Item) -> dict[str, tuple[str, ...]]:
        return applying(item.task, item.genre, self.without, self.form)

    def _tells(self, item: Item) -> bool:
        """Whether dashes are speech to the rule of formatting; "parity" does not look at genres."""
        return self.form == "fixed" and is_fiction(item.genre)

    def _questions(self, item: Item) -> list[Question]:
        data = {"prompt": item.prompt, "response": item.response}
        if item.reference:
            data["reference"] = item.reference
        asked = [path for paths in self._tree(item).values() for path in paths if path != BY_RULE]
        how = {"referenced": bool(item.reference)}
        return [Question(path, self._prompt(data, asked=leaf_name(path), **how), labels_of(path)) for path in asked]

    def _weighed(self, tree: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        """The names that the model is to weigh, by node: none for a node of one leaf, which has the whole weight."""
        if self.weights != "generated":
            return {}
        if self.form == "parity":
            four = tuple(leaf_name(path) for path in TREE["content"] if path != IMPUTED)
            return {"content": four} if "content" in tree else {}
        return {node: tuple(map(leaf_name, paths)) for node, paths in tree.items() if len(paths) > 1}

    def _wishes(self, item: Item) -> dict[str, Wish]:
        """The weights that an item needs, by their keys."""
        wishes = [(item.prompt, names) for names in self._weighed(self._tree(item)).values()]
        return {self.weighing.key(*wish): wish for wish in wishes}

    def weights_of(self, items: Iterable[Item]) -> dict[Wish, Weights]:
        """The weights that the model has written for the items' instructions; asked for where there are none yet."""
        wishes = {key: wish for item in items for key, wish in self._wishes(clean(item)).items()}
        list(self.weighing.weigh(wishes))
        found = {wish: self.weighing.known(key) for key, wish in wishes.items()}
        return {wish: weights for wish, weights in found.items() if weights is not None}

    def conclude(self, subject: Item, answers: Mapping[str, Answer], truncated: bool) -> Verdict:
        """The verdict on an item whose questions were answered so; written weights are the journal's."""
        self.weights_of([subject])
        return super().conclude(subject, answers, truncated)

    def _judge(self, items: Mapping[str, Item]) -> Iterator[Concluded[Verdict]]:
        """Leaves and weights are asked for at one go; a verdict comes as soon as all of its own are there."""
        asked = {key: self.ask(item) for key, item in items.items()}
        wishes = {key: self._wishes(item) for key, item in items.items()}
        answers: dict[str, dict[str, Answer]] = {key: {} for key in items}
        scored = [key for key, (questions, _) in asked.items() if not questions]  # wait for weights at most

        def leaves() -> Iterator[None]:
            questions = {(key, question.name): [question] for key, (some, _) in asked.items() for question in some}
            for (key, _), answer in self._answered(questions):
                answers[key].update(answer)
                if len(answers[key]) == len(asked[key][0]):
                    scored.append(key)
                yield

        weights = self.weighing.weigh({key: wish for some in wishes.values() for key, wish in some.items()})
        for _ in chain(interleaved(leaves(), weights), [None]):  # once more: what is known already yields nothing
            for key in [key for key in scored if all(map(self.weighing.known, wishes[key]))]:
                scored.remove(key)
                yield self._concluded(items[key], asked[key], answers[key], key)

    def _conclude(self, item: Item, answers: Mapping[str, Answer], key: str, truncated: bool) -> Verdict:
        tree = self._tree(item)
        shares = counts(tree, self.form)
        parts: dict[str, Part] = {}
        nodes: dict[str, float] = {}
        why: Reason | None = None if tree else "unsupported"
        for node, paths in tree.items():
            edges, reason = self._edges(item, node, paths)
            leaves = {path: self._leaf(path, item, answers, edges.get(path, 0.0)) for path in paths}
            if reason := reason or self._missing(leaves):
                parts[node], why = Part(None, shares[node], abstained=reason), why or reason
            else:
                scores = {path: MISSING if leaf.score is None else leaf.score for path, leaf in leaves.items()}
                nodes[node] = node_score(paths, scores, edges)
                parts[node] = Part(nodes[node], shares[node])
            if node in leaves:  # impression is a leaf itself
                leaves = {node: msgspec.structs.replace(leaves[node], weight=shares[node])}
            parts.update(leaves)
        verdict = self._verdict(None, parts, answers, key, truncated or self._shortened(item))
        score = None if why else root_score(nodes, shares)
        return msgspec.structs.replace(verdict, score=score, abstained=why)

    def _leaf(self, path: str, item: Item, answers: Mapping[str, Answer], weight: float) -> Part:
        if path == BY_RULE:
            return Part(formatting_score(item.response, fiction=self._tells(item)), weight)
        return self._part(answers[path], weight)

    def _missing(self, leaves: Mapping[str, Part]) -> Reason | None:
        """Why a node has no score; in "parity" only for what lies in the moment, and would be another one later."""
        if self.form == "fixed":
            return abstention(leaves)
        return next((leaf.abstained for leaf in leaves.values() if leaf.abstained in PASSING), None)

    def _edges(self, item: Item, node: str, paths: Sequence[str]) -> tuple[dict[str, float], Reason | None]:
        """The weights of a node's leaves; none, with the reason, where the model has not written any that will do."""
        names = self._weighed(self._tree(item)).get(node)
        if names is not None:
            found = self.weighing.known(self.weighing.key(item.prompt, names))
            assert found is not None
            if found.values is None:
                return {}, found.abstained
            given = {f"{node}/{name}": weight for name, weight in found.values.items()}
            edges = rescaled(imputed(given) if self.form == "parity" else given, paths)
            return (edges, None) if edges else ({}, "unparsable")
        if isinstance(self.weights, dict) and paths[0] in self.weights:
            edges = rescaled(self.weights, paths)
            assert edges is not None  # all that may apply were checked
            return edges, None
        return equal_edges(paths), None

    def _shortened(self, item: Item) -> bool:
        found = map(self.weighing.known, self._wishes(item))
        return any(weights.truncated for weights in found if weights is not None)
