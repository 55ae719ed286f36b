"""Training a direct evaluator: the label distribution at a judge's answer slot becomes that of people's scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from scipy import stats
from torch.nn.functional import binary_cross_entropy_with_logits

from adjudge.engine.models.sources import OpenModel
from adjudge.engine.running.head import FINAL_NORMS
from adjudge.training.evaluator.fitting import Batch, Task, fit
from adjudge.training.evaluator.packing import Pack, packed, padded, shares, stacked
from adjudge.training.evaluator.questions import (
    NUMBERS,
    Rated,
    Slot,
    WordingEngine,
    check_columns,
    check_varied,
    rated_rows,
    slots_of,
)
from adjudge.training.evaluator.recipe import Asked, DirectOptimiser, DirectRecipe, JudgeRecipe
from adjudge.training.evaluator.split import read_split
from adjudge.training.policy import room
from adjudge.training.progress import watched
from adjudge.training.run import Run, Status, heard_once, processes

if TYPE_CHECKING:
    from transformers import TrainerCallback


class Example(msgspec.Struct, frozen=True):
    """The answer slots of a row, or of rows learnt together, and their prompts as they go through the model."""

    slots: tuple[Slot, ...]
    packs: tuple[Pack, ...]


class Answer(msgspec.Struct, frozen=True):
    """What the model says at one slot: the labels' probabilities, and their mass under the whole vocabulary.

    `misplaced` is the loss of telling which sentences of the slot's example are in their place.
    """

    probabilities: tuple[float, ...]
    mass: float
    misplaced: float = 0.0

    @property
    def score(self) -> float:
        """The expected score."""
        return math.fsum(p * number for p, number in zip(self.probabilities, NUMBERS, strict=True))


def train_direct(
    recipe: DirectRecipe,
    *,
    resume: bool = False,
    overwrite: bool = False,
    status: Status = lambda line: None,
    callbacks: Sequence[TrainerCallback] = (),
) -> Run:
    """Train the model of a recipe to answer as people did, where a judge in direct mode reads its answers.

    Folder, processes and resuming are those of `train_sft`; the policy is then the judge's model, or its adapter.
    Raises AdjudgeError for what can be mended, before the model is loaded where possible.
    """
    status, rows = heard_once(status), read_split(recipe.data, recipe.seed)
    asked, scores = recipe.judge, recipe.scores
    check_columns((*rows.train, *rows.held_out), asked, scores)
    train, held_out = rated_rows(rows.train, asked, scores), rated_rows(rows.held_out, asked, scores)
    check_varied(train)
    for line in rows.told:
        status(line)

    def open_task(opened: OpenModel) -> SlotTask:
        return SlotTask(recipe, opened, recipe.optimiser, [(asked, train, held_out)])

    how: dict[str, Any] = {"resume": resume, "overwrite": overwrite, "status": status, "callbacks": callbacks}
    return fit(recipe, rows.fingerprint, open_task, measure="loss", **how)


class SlotTask(Task[Example]):
    """Label distributions at answer slots, held against people's; the questions of a row share what they can.

    `judged` are the rows to train on and those held out, by whose questions are asked about them.
    """

    adapter_task = "CAUSAL_LM"

    def __init__(
        self,
        recipe: JudgeRecipe,
        opened: OpenModel,
        how: DirectOptimiser,
        judged: Sequence[tuple[Asked, Sequence[Rated], Sequence[Rated]]],
    ) -> None:
        self.model = opened.model
        self.mass, self.gap, self.places = how.mass, how.gap, how.places
        self.pad = opened.tokenizer.pad_token_id or 0
        engine = WordingEngine(recipe.policy.model, opened.tokenizer, room(recipe.optimiser.max_tokens, self.model))
        together = shares(self.model)
        self.shortened = 0
        self._rows = sum(len(train) for _, train, _ in judged), sum(len(held_out) for _, _, held_out in judged)
        sides: tuple[dict[str, list[Slot]], dict[str, list[Slot]]] = ({}, {})
        for asked, *both in judged:
            for side, rated in zip(sides, both, strict=True):
                for one, (slots, shortened) in zip(rated, slots_of(rated, asked, engine), strict=True):
                    side.setdefault(one.together or f"row {len(side)}", []).extend(slots)
                    self.shortened += shortened
        self.train, self.held_out = ([_example(slots, together) for slots in side.values()] for side in sides)

    @property
    def rows(self) -> tuple[int, int]:
        """How many rows the examples of both sides are."""
        return self._rows

    def begin(self, model: Any, device: torch.device, at_once: int) -> None:
        """What is anchored among the rows to train on is to be answered as this model does."""
        train = list(self.train)
        asked = [n for n, example in enumerate(train) if any(slot.anchored for slot in example.slots)]
        if not asked:
            return
        model.to(device).eval()
        for places, batch in self.batches(asked, device, at_once, "what is to be answered as before"):
            begun = self._as_begun(model, batch, [train[n] for n in places])
            for place, example in zip(places, begun, strict=True):
                train[place] = example
        self.train = train
        model.train()

    def batches(
        self, places: Iterable[int], device: torch.device, at_once: int, what: str
    ) -> Iterator[tuple[list[int], Batch]]:
        """Batches of the examples to train on at some places, each with its places; a bar shows them.

        The longest come first: what they take of memory serves the others, where rising lengths would take ever more.
        """
        order = sorted(places, key=lambda n: self.length(self.train[n]), reverse=True)
        parts = [order[start : start + at_once] for start in range(0, len(order), at_once)]
        for own in watched(what, parts, len(parts), shown=processes().is_main_process):
            batch = self.batch([self.train[n] for n in own])
            yield own, {name: part.to(device) for name, part in batch.items()}

    def length(self, example: Example) -> int:
        """The tokens of its longest pack."""
        return max(len(pack.tokens) for pack in example.packs)

    def batch(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """The model's inputs, and of each slot [S]: its row, its place among `logits_to_keep`, its row's share.

        `label_ids` [S, K, M] are the tokens that each label may be written as, -1 where there are fewer; `compared`
        [P, 2] the slots whose gap counts, each with its share; `sentences` [T, 3] the sentences whose place is known:
        row, last token, and whether it is its own, each with its share in `told`; `known` are how many each row has.
        """
        packs = [pack for example in examples for pack in example.packs]
        slots = [slot for example in examples for slot in example.slots]
        rows, starts = packs, [(row, 0) for row in range(len(packs))]
        if any(pack.branches for pack in packs):  # who sees whom is said anyway
            rows, starts = stacked(packs)
        ends = [(row, start + end) for pack, (row, start) in zip(packs, starts, strict=True) for end in pack.ends]
        kept = sorted({end for _, end in ends})
        widest = max(len(ids) for slot in slots for ids in slot.labels)
        labels = [[[*ids, *[-1] * (widest - len(ids))] for ids in slot.labels] for slot in slots]
        weights = [1 / len(example.slots) / len(examples) for example in examples for _ in example.slots]
        sentences = _sentences(examples, starts)
        told = [1 / len(own) / len(examples) for own in sentences for _ in own]
        compared: list[tuple[int, int]] = []
        portions: list[float] = []
        first = 0
        for example in examples:
            found = comparisons(example.slots)
            compared += [(first + one, first + other) for one, other in found]
            portions += [1 / (len(found) * len(examples)) for _ in found]
            first += len(example.slots)
        return {
            **padded(rows, self.pad),
            "logits_to_keep": torch.tensor(kept),
            "rows": torch.tensor([row for row, _ in ends]),
            "places": torch.tensor([kept.index(end) for _, end in ends]),
            "label_ids": torch.tensor(labels),
            "targets": torch.tensor([slot.target for slot in slots]),
            "weights": torch.tensor(weights),
            "counts": torch.tensor([len(example.slots) for example in examples]),
            "compared": torch.tensor(compared, dtype=torch.int64).view(-1, 2),
            "portions": torch.tensor(portions),
            "sentences": torch.tensor([one for own in sentences for one in own], dtype=torch.int64).view(-1, 3),
            "told": torch.tensor(told),
            "known": torch.tensor([len(own) for own in sentences]),
        }

    def loss(self, model: Any, batch: Batch) -> torch.Tensor:
        """Cross-entropy with people's distribution over the labels, plus what label mass, gaps and places count."""
        placed = self._placed(batch)
        out = run_batch(model, batch, output_hidden_states=placed)
        labels_SK, mass_S = read_labels(out.logits, batch)
        missed_S = -(batch["targets"] * labels_SK).sum(-1) - self.mass * mass_S
        off_S = (labels_SK.exp() - batch["targets"]) @ torch.tensor(NUMBERS, device=labels_SK.device)
        off_P = off_S[batch["compared"][:, 0]] - off_S[batch["compared"][:, 1]]
        loss = (missed_S * batch["weights"]).sum() + self.gap * (off_P.square() * batch["portions"]).sum()
        return loss + self.places * (self._misplaced(out, batch) * batch["told"]).sum() if placed else loss

    def answers(self, model: Any, batch: Batch) -> list[list[Answer]]:
        """The distributions at each example's slots."""
        placed = self._placed(batch)
        out = run_batch(model, batch, output_hidden_states=placed)
        labels_SK, mass_S = read_labels(out.logits, batch)
        missed = iter(self._misplaced(out, batch).tolist() if placed else [])
        taken = zip(labels_SK.exp().tolist(), mass_S.exp().tolist(), strict=True)
        answers = []
        for count, known in zip(batch["counts"].tolist(), batch["known"].tolist(), strict=True):
            misplaced = fmean(itertools.islice(missed, known)) if placed and known else 0.0
            answers.append([Answer(tuple(row), mass, misplaced) for row, mass in itertools.islice(taken, count)])
        return answers

    def measures(self, examples: Sequence[Example], answers: Sequence[list[Answer]]) -> dict[str, float | None]:
        """Loss, mean absolute error, correlations with people's mean scores, and label mass.

        `order` is the share of the comparisons between texts learnt together that come out as people's scores do.
        `entropy` is that of the likeliest labels over all slots, `entropy_known` that of the known ones: a judge that
        gives the commonest score alone has none.
        """
        slots = [slot for example in examples for slot in example.slots]
        given = [answer for row in answers for answer in row]
        scores, people = [answer.score for answer in given], [slot.score for slot in slots]
        losses = [self._missed(row, example.slots) for row, example in zip(answers, examples, strict=True)]
        right = [one for row, example in zip(answers, examples, strict=True) for one in _in_order(row, example.slots)]
        measures: dict[str, float | None] = {
            "loss": fmean(losses),
            "error": fmean(abs(score - said) for score, said in zip(scores, people, strict=True)),
            **_correlations(scores, people),
            **({"order": fmean(right)} if right else {}),
            "mass": fmean(answer.mass for answer in given),
            "mass_least": min(answer.mass for answer in given),
            "entropy": _entropy([_best(answer.probabilities) for answer in given]),
            "entropy_known": _entropy([_best(slot.target) for slot in slots]),
        }
        aspects = dict.fromkeys(slot.aspect for slot in slots)
        for aspect in aspects if len(aspects) > 1 else ():
            places = [place for place, slot in enumerate(slots) if slot.aspect == aspect]
            found = _correlations([scores[place] for place in places], [people[place] for place in places])
            measures[f"spearman/{aspect}"] = found["spearman"]
        return measures

    def _placed(self, batch: Batch) -> bool:
        """Whether places of sentences count, and are known."""
        return self.places > 0 and len(batch["sentences"]) > 0

    def _misplaced(self, out: Any, batch: Batch) -> torch.Tensor:
        """The loss [T] of telling, where each sentence ends, whether it is in its place."""
        sentences_T3 = batch["sentences"]
        layer = round(2 / 3 * (len(out.hidden_states) - 1))
        hidden_TD = out.hidden_states[layer][sentences_T3[:, 0], sentences_T3[:, 1]]
        odds_T = self._best_over_worst(hidden_TD, batch["label_ids"][0, :, 0])
        return binary_cross_entropy_with_logits(odds_T, sentences_T3[:, 2].float(), reduction="none")

    def _best_over_worst(self, hidden_TD: torch.Tensor, labels_K: torch.Tensor) -> torch.Tensor:
        """The log-odds [T] of the highest label over the lowest that the head would give hidden states [T, D]."""
        decoder = self.model.get_decoder()
        norm = next(norm for name in FINAL_NORMS if (norm := getattr(decoder, name, None)) is not None)
        weight_VD = self.model.get_output_embeddings().weight
        worst_D, best_D = weight_VD[labels_K[:: len(labels_K) - 1]]  # one look-up, for which no CPU waits
        odds_T: torch.Tensor = norm(hidden_TD).float() @ (best_D - worst_D).float()
        return odds_T

    def _as_begun(self, model: Any, batch: Batch, examples: Sequence[Example]) -> list[Example]:
        """A batch's examples with the model's answers in the place of people's where they are anchored."""
        with torch.no_grad():
            answers = self.answers(model, batch)
        slots = [
            tuple(
                msgspec.structs.replace(slot, target=answer.probabilities) if slot.anchored else slot
                for slot, answer in zip(example.slots, row, strict=True)
            )
            for example, row in zip(examples, answers, strict=True)
        ]
        return [msgspec.structs.replace(example, slots=own) for example, own in zip(examples, slots, strict=True)]

    def _missed(self, answers: Sequence[Answer], slots: Sequence[Slot]) -> float:
        """The loss of one example."""
        crossed = [
            -math.fsum(share * math.log(max(p, 1e-38)) for share, p in zip(slot.target, one.probabilities, strict=True))
            - self.mass * math.log(max(one.mass, 1e-38))
            for one, slot in zip(answers, slots, strict=True)
        ]
        off = [one.score - slot.score for one, slot in zip(answers, slots, strict=True)]
        gaps = [(off[one] - off[other]) ** 2 for one, other in comparisons(slots)]
        gap = self.gap * fmean(gaps) if gaps else 0.0
        return fmean(crossed) + gap + self.places * answers[0].misplaced


def comparisons(slots: Sequence[Slot]) -> list[tuple[int, int]]:
    """The slots of one aspect, two by two."""
    pairs = itertools.combinations(range(len(slots)), 2)
    return [(one, other) for one, other in pairs if slots[one].aspect == slots[other].aspect]


def _in_order(answers: Sequence[Answer], slots: Sequence[Slot]) -> list[bool]:
    """Whether each comparison comes out as people's scores do, where those differ."""
    return [
        (answers[one].score - answers[other].score) * (slots[one].score - slots[other].score) > 0
        for one, other in comparisons(slots)
        if slots[one].score != slots[other].score
    ]


def _example(slots: Sequence[Slot], together: bool) -> Example:
    prompts = [slot.tokens for slot in slots]
    packs = [packed(prompts)] if together else [packed([prompt]) for prompt in prompts]
    return Example(tuple(slots), tuple(packs))


def _sentences(examples: Sequence[Example], starts: Sequence[tuple[int, int]]) -> list[list[tuple[int, int, bool]]]:
    """Of each example's sentences whose place is known: row, last token, whether it is in its place; each once.

    `starts` are each pack's row and first place there.
    """
    of_packs = iter(starts)
    return [_sentences_of(example, [next(of_packs) for _ in example.packs]) for example in examples]


def _sentences_of(example: Example, starts: Sequence[tuple[int, int]]) -> list[tuple[int, int, bool]]:
    found: dict[tuple[int, int], bool] = {}
    packs = zip(example.packs, starts, strict=True)
    ends = ((row, start, pack, end) for pack, (row, start) in packs for end in pack.ends)
    for slot, (row, start, pack, end) in zip(example.slots, ends, strict=True):
        way = pack.way(end) if slot.sentences else []
        found |= {(row, start + way[token]): kept for token, kept in slot.sentences}
    return [(row, place, kept) for (row, place), kept in found.items()]


def run_batch(model: Any, batch: Batch, **options: Any) -> Any:
    """What the model says of a batch."""
    inputs = {name: batch[name] for name in ("input_ids", "position_ids", "attention_mask") if name in batch}
    return model(**inputs, logits_to_keep=batch["logits_to_keep"], use_cache=False, **options)


def read_labels(logits_BUV: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """The labels' log-probabilities among themselves [S, K], and the log of their mass [S]."""
    logits_SV = logits_BUV[batch["rows"], batch["places"]].float()
    ids_SKM = batch["label_ids"]
    flat = ids_SKM.clamp(min=0).flatten(1)
    spelt_SKM = logits_SV.gather(1, flat).view(ids_SKM.shape).masked_fill(ids_SKM < 0, -math.inf)
    labels_SK = spelt_SKM.logsumexp(-1) - logits_SV.logsumexp(-1, keepdim=True)
    mass_S = labels_SK.logsumexp(-1)
    return labels_SK - mass_S[:, None], mass_S


def _correlations(scores: Sequence[float], people: Sequence[float]) -> dict[str, float | None]:
    """Pearson's, Spearman's and Kendall's; None where a side does not vary."""
    if min(len(set(scores)), len(set(people))) < 2:
        return dict.fromkeys(("pearson", "spearman", "kendall"))
    measures = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}
    return {name: float(measure(scores, people).statistic) for name, measure in measures.items()}


def _best(shares: Sequence[float]) -> int:
    return max(range(len(shares)), key=shares.__getitem__)


def _entropy(labels: Sequence[int]) -> float:
    """Of how often each label comes, in nats."""
    shares = [labels.count(label) / len(labels) for label in set(labels)]
    return -math.fsum(share * math.log(share) for share in shares)
