"""What goes into a tournament and what comes out: the wire format of groups and their verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from adjudge.engine.checking import shown
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.score import Reason
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.records.rows import id_text
from adjudge.rewards.records.verdict import check_texts


class Group(msgspec.Struct, frozen=True):
    """The responses to one prompt, with a `reference` they are held against where there is one.

    `columns` is what else a data set says about the prompt, for judges that read it (`rubric`, `reviews`, ...).
    `conversation` are the turns that the prompt is the text of, each (role, text); () for a prompt that is a text.
    `by_response` has the columns in which the responses differ, with a value for each, in their order: for functions.
    Raises AdjudgeError for a prompt, a response or a reference that is no string, responses that are no list, and other
    than one value for each of them.
    """

    prompt: str
    responses: Sequence[str]
    reference: str | None = None
    id: str = ""
    columns: Mapping[str, Any] = msgspec.field(default_factory=dict)
    conversation: tuple[tuple[str, str], ...] = ()
    by_response: Mapping[str, Sequence[Any]] = {}

    def __post_init__(self) -> None:
        place = f'group "{self.id}"'
        if isinstance(self.responses, str) or not isinstance(self.responses, Sequence):
            raise AdjudgeError(f"{place}: responses is {shown(self.responses)}: give a list of strings")
        named = {f"response {number}": response for number, response in enumerate(self.responses, 1)}
        check_texts(place, {"prompt": self.prompt, **named})
        check_texts(place, {"reference": self.reference}, absent=True)
        for name, values in self.by_response.items():
            if len(values) != len(self.responses):
                raise AdjudgeError(
                    f'{place}: {len(values)} values of "{name}" for {len(self.responses)} responses: give one for each'
                )

    @property
    def names(self) -> list[str]:
        """The columns that there are, with `reference` and `id` where it has them."""
        own = {"reference": self.reference is not None, "id": bool(self.id)}
        return [*self.columns, *self.by_response, *(name for name, there in own.items() if there)]

    def values(self, name: str) -> Sequence[Any]:
        """What each response has in a column, ids as texts; None where there is none."""
        shared = {**self.columns, "reference": self.reference, "id": self.id}
        values = self.by_response.get(name, [shared.get(name)] * len(self.responses))
        return [*map(id_text, values)] if name == "id" else values

    def shared(self, name: str, place: str) -> Any:
        """What the responses have in a column of which one value is read, None where they have none.

        Raises AdjudgeError naming `place` where they differ in it.
        """
        if name in self.by_response:
            raise AdjudgeError(
                f'{place}: the responses differ in "{name}", of which one value is read for all: make it the same, or'
                ' give rows that differ in it another "id" each'
            )
        return self.columns.get(name)

    def place(self, number: int) -> str:
        """How errors call it, which is the group of that number, counted from 1."""
        name = f'group "{self.id}"' if self.id else f"group {number}"
        words = " ".join(well_formed(self.prompt[:300]).split())
        return f'{name}, prompt "{words if len(words) <= 60 else words[:60] + "…"}"'

    def showing(self, texts: Sequence[str | None]) -> Group:
        """The same with these texts for its responses, without those whose text is None."""
        kept = [place for place, text in enumerate(texts) if text is not None]
        return msgspec.structs.replace(
            self,
            responses=[text for text in texts if text is not None],
            by_response={name: [values[place] for place in kept] for name, values in self.by_response.items()},
        )


class Outcome(msgspec.Struct, frozen=True):
    """A pair that was asked. `a` and `b` are places among the responses (of equal ones the first), None the reference.

    `preference` is the probability that a is better, None when the judge `abstained`; `key` is the journal's. `mass`
    and `bias` are those of the verdict: the least label mass, and the log-odds for the first place.
    """

    a: int | None
    b: int | None
    preference: float | None
    abstained: Reason | None
    key: str
    mass: float | None = None
    bias: float | None = None


class GroupVerdict(msgspec.Struct, frozen=True):
    """What a tournament concludes about a group.

    `strengths`, one for each response: log-odds with mean zero over the different texts, the reference included
    (Bradley–Terry), or mean preferences (Borda). They are those of the largest part of the group that answered
    comparisons join (of equal ones that with the first text by the seed), None for any other response.
    `errors` are the standard errors of Bradley–Terry strengths. `preferences` are the probabilities that each response
    is better than the reference (None without a reference, and for a response that no comparisons join to it).
    `abstained` is the judge's commonest reason where no pair at all was answered. A lone response has nobody to be
    compared with: its strength is 0, and nothing has abstained. `truncated` says that a text was shortened to fit;
    `model` and `adapter` are those of the pairs' verdicts, "" and none where nothing was compared; `key` stands for
    all that decided the verdict.
    """

    id: str
    strengths: tuple[float | None, ...]
    errors: tuple[float | None, ...]
    reference_strength: float | None
    preferences: tuple[float | None, ...] | None
    outcomes: tuple[Outcome, ...]
    abstained: Reason | None
    truncated: bool
    model: str
    key: str
    adapter: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def abstentions(self) -> Counter[Reason]:
        """How many of the pairs asked got no answer, by reason."""
        return Counter(outcome.abstained for outcome in self.outcomes if outcome.abstained)

    @property
    def ranks(self) -> tuple[int | None, ...]:
        """The rank of each response among them, the strongest 1, equal ones the same; None without a strength."""
        known = [strength for strength in self.strengths if strength is not None]
        return tuple(None if mine is None else 1 + sum(other > mine for other in known) for mine in self.strengths)

    @property
    def best(self) -> int | None:
        """The place of the strongest response (of equals the first), None where no response has a strength."""
        return self._place(max)

    @property
    def worst(self) -> int | None:
        """The place of the weakest response (of equals the first), None where no response has a strength."""
        return self._place(min)

    def _place(self, chosen: Callable[..., int]) -> int | None:
        known = {place: strength for place, strength in enumerate(self.strengths) if strength is not None}
        return chosen(known, key=known.__getitem__) if known else None
