"""What a trainer hands over, completion by completion, and how completions become groups."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import msgspec

from adjudge.engine.errors import AdjudgeError
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.messages import Text, columns_of, exact, is_column, listed, prompt_of, same, text_of
from adjudge.rewards.records.rows import id_text, missing

Turns = Literal["all", "own", "last"]

NOT_COLUMNS = ("trainer_state", "log_extra", "log_metric")
"""What trainers pass besides the columns of their data."""


class Sample(msgspec.Struct, frozen=True):
    """One completion, the prompt it answers, and what the data set says about the prompt.

    `conversation` are the turns that the prompt is the text of: see `Group`.
    """

    prompt: str
    response: str
    columns: dict[str, Any] = {}
    conversation: tuple[tuple[str, str], ...] = ()


def samples_of(
    prompts: Sequence[Any],
    completions: Sequence[Any],
    columns: Mapping[str, Any],
    wanted: Sequence[str] | None = None,
    system: str | None = None,
    turns: Turns = "all",
) -> list[Sample]:
    """The completions, each with its row of the columns: those that are `wanted`, or all that are columns.

    Prompts and completions are texts or conversations. Where a prompt begins with a system's turn that says `system`,
    its text is without that; its conversation has it. Of a completion of several turns `turns` says which are judged:
    all of them, each after its role; the policy's "own", without what tools and others said; or the "last" of these.
    Raises AdjudgeError for lists and columns that do not fit together and for a wanted column that is not there.
    """
    completions = listed("completions", completions)
    count = len(completions)
    if wanted is None:
        kept = {name: listed(name, each, count) for name, each in columns.items() if is_column(each)}
    else:
        kept = {name: _column(name, columns, count) for name in wanted}
    asked = [prompt_of(one, f"prompts[{place}]", system) for place, one in enumerate(listed("prompts", prompts, count))]
    return [
        Sample(
            prompt,
            text_of(_judged(completion, turns), f"completions[{place}]"),
            {name: values[place] for name, values in kept.items()},
            conversation,
        )
        for place, ((prompt, conversation), completion) in enumerate(zip(asked, completions, strict=True))
    ]


def grouped(prompts: Sequence[Text], completions: Sequence[Text], columns: Mapping[str, Any]) -> list[Group]:
    """The groups of a call: runs of completions whose prompt, `id` and `reference` are equal, in order.

    Each column has a value for each completion, of any kind (`same` compares them): see `columns_of`. Equal rows of a
    data set that follow each other are one run: give them a column `id` that tells them apart. Raises AdjudgeError
    naming the column, or the place of a prompt or completion that is no text.
    """
    completions = listed("completions", completions)
    prompts = listed("prompts", prompts, len(completions))
    samples = samples_of(prompts, completions, columns, [name for name in columns if name not in NOT_COLUMNS])
    return [group_of(run) for run in _runs(samples, prompts=prompts)]


def cut(samples: Sequence[Sample], size: int | None = None, reference: str = "reference") -> list[Sequence[Sample]]:
    """The groups among completions that stand group by group: of `size` each, or the runs of equal prompts.

    A run ends where the prompt changes, or the `id` or the reference that the data set has for it. Two groups that are
    equal in all three are one run where they follow each other: only a `size` tells them apart. (TRL's GRPOTrainer and
    RLOOTrainer can be asked for it, and AsyncGRPOTrainer sends one group at a time; from its SDPOTrainer and from calls
    by hand such groups may come, where a data set holds a row twice.) Raises AdjudgeError where groups would not be
    whole, have several prompts, or cannot be told from one another.
    """
    if size is None:
        runs = _runs(samples, reference)
        if len({len(run) for run in runs}) > 1:
            lengths = ", ".join(str(len(run)) for run in runs[:8])
            raise AdjudgeError(
                f"equal prompts stand in runs of {lengths} completions, so that groups cannot be told:"
                " pass num_generations, the trainer's own, or give the data set a column id"
            )
        return runs
    if size < 1 or len(samples) % size:
        raise AdjudgeError(f"{len(samples)} completions are no whole groups of {size}: check num_generations")
    groups = [samples[start : start + size] for start in range(0, len(samples), size)]
    for number, group in enumerate(groups):
        if any(sample.prompt != group[0].prompt for sample in group):
            raise AdjudgeError(
                f"completions {number * size} to {(number + 1) * size - 1} answer different prompts, so that they are"
                f" no group of {size}: check num_generations, or give asynchronous=True where environments add to them"
            )
    return groups


def side_by_side(samples: Sequence[Sample], size: int | None = None, reference: str = "reference") -> list[int]:
    """The places of completions in an order in which those to one prompt follow each other; with a `size` they do.

    TRL's OnlineDPOTrainer lets all prompts come once, and then all of them again. Where some follow each other as they
    are, the order stays, and so it does where each prompt comes once.
    """
    if size is not None or len(_runs(samples, reference)) < len(samples):
        return list(range(len(samples)))
    keys = [(one.prompt, id_text(one.columns.get("id")), str(_there(one.columns.get(reference)))) for one in samples]
    return [place for places in collected(keys) for place in places]


def pieces(
    samples: Sequence[Sample], size: int | None, offset: int, reference: str = "reference"
) -> list[Sequence[Sample]]:
    """The groups, or parts of groups, in a slice that begins `offset` completions after a group's first.

    A slice that is cut out of a batch may begin and end inside a group. Without a `size` it is cut as by `cut`.
    """
    if size is None:
        return _runs(samples, reference)
    bounds = [0, *(place for place in range(1, len(samples)) if (offset + place) % size == 0), len(samples)]
    return [samples[start:end] for start, end in pairwise(bounds) if start < end]


def collected(keys: Sequence[Hashable], size: int | None = None) -> list[list[int]]:
    """The places of equal keys, in the order in which keys first come; of `size` each where a key comes more often.

    Raises AdjudgeError for a key that comes neither `size` times nor a multiple of that.
    """
    found: dict[Hashable, list[int]] = {}
    for place, key in enumerate(keys):
        found.setdefault(key, []).append(place)
    if size is None:
        return list(found.values())
    for key, places in found.items():
        if size < 1 or len(places) % size:
            raise AdjudgeError(
                f"{len(places)} samples of {key!r:.60} are no whole groups of {size}: check num_generations"
            )
    return [places[start : start + size] for places in found.values() for start in range(0, len(places), size)]


def group_of(samples: Sequence[Sample], reference: str = "reference") -> Group:
    """Completions of one prompt as a group; the column `reference` holds the text they are held against.

    A column in which they differ says nothing about their prompt, and is kept for each. A reference that is `missing`,
    as tables have it, is None. Raises AdjudgeError where it is the reference in which they differ, or that is no text.
    """
    first = samples[0]
    none = [{reference: None} if missing(sample.columns.get(reference, "")) else {} for sample in samples]
    shared, apart = columns_of([{**sample.columns, **own} for sample, own in zip(samples, none, strict=True)])
    if reference in apart:
        raise AdjudgeError(
            f'completions of the prompt "{first.prompt[:40]}" have different texts in the column "{reference}", so that'
            " they are no group: check num_generations, or name the right column"
        )
    held_against, ids = shared.get(reference), [id_text(sample.columns.get("id")) for sample in samples]
    shared.pop("id", None)
    if len({*ids}) == 1:  # 7 and 7.0, or none and NaN, are one id
        apart.pop("id", None)
    if reference == "reference":
        shared.pop(reference, None)  # the group's own; by another name functions look for it among the columns
    if held_against is not None and not isinstance(held_against, str):
        raise AdjudgeError(
            f'column "{reference}" holds {type(held_against).__name__} for the prompt "{first.prompt[:40]}": make it'
            " texts, or name another column"
        )
    responses, own = [sample.response for sample in samples], "" if "id" in apart else ids[0] or ""
    held_against = exact(held_against) if held_against else None
    return Group(first.prompt, responses, held_against, own, shared, first.conversation, apart)


def _runs(
    samples: Sequence[Sample], reference: str = "reference", prompts: Sequence[Any] | None = None
) -> list[Sequence[Sample]]:
    """The runs of equal samples; `prompts` are their prompts as they came, which may differ in more than text."""
    prompts = [sample.prompt for sample in samples] if prompts is None else prompts
    rows = [sample.columns for sample in samples]
    ids = [None if id_text(row.get("id")) is None else row["id"] for row in rows]
    known = [(prompt, own, _there(row.get(reference))) for prompt, own, row in zip(prompts, ids, rows, strict=True)]
    starts = [place for place in range(len(samples)) if place == 0 or not same(known[place], known[place - 1])]
    return [samples[start:end] for start, end in pairwise([*starts, len(samples)])]


def _there(value: Any) -> Any:
    """The value, None where it is `missing`."""
    return None if missing(value) else value


def _judged(completion: Any, turns: Turns) -> Any:
    """The turns of a completion that are judged; whatever else it is, as it is."""
    if turns == "all" or isinstance(completion, str) or not isinstance(completion, Sequence):
        return completion
    own = [one for one in completion if not isinstance(one, Mapping) or one.get("role") == "assistant"]
    return own[-1:] if turns == "last" else own


def _column(name: str, columns: Mapping[str, Any], count: int) -> list[Any]:
    if name not in columns:
        there = ", ".join(sorted(columns)) or "none"
        raise AdjudgeError(f'column "{name}" is missing (the data set has: {there}): add it, or do not ask for it')
    return listed(name, columns[name], count)
