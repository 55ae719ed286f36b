"""What agents of a debate say about a text: merits or flaws, each with its reason, written as a JSON object."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

import msgspec

from adjudge.engine.completion import Completion
from adjudge.engine.face import EngineFace
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import Reason
from adjudge.engine.text.prompt import Prompt
from adjudge.engine.text.tokenizer import well_formed
from adjudge.rewards.judges.asking import check_writer, room_for, seed_of

Name = TypeVar("Name", bound=Hashable)

POINTS, REASON_LENGTH = 8, 240
"""The most points of a statement, and the most characters of each reason, so that a text comes to its end."""

SCHEMA = json.dumps(
    {
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": REASON_LENGTH},
        "maxProperties": POINTS,
    }
)
"""The form of a statement: {point: reason}."""


class Statement(msgspec.Struct, frozen=True):
    """The `text` that an agent wrote and its `points`, each with its reason; None, with why, where it holds none.

    An empty object is a statement: the agent found nothing.
    """

    text: str
    points: dict[str, str] | None
    abstained: Reason | None = None

    @property
    def shown(self) -> str:
        """The points one by one, as the other agents read them."""
        return "\n".join(f"- {point}: {why}" for point, why in (self.points or {}).items()) or "-"


class Statements:
    """Has statements written, many at a time.

    A text that is cut short or is not of the form is written again with another seed, `attempts` times in all (at
    temperature 0 once), then the statement abstains with "unparsable". Seeds are drawn from `seed` and the prompt's
    text, so that equal prompts get equal statements in whatever company. `reserve` is the room, in tokens, that a
    prompt must leave. Raises AdjudgeError for settings that make no sense.
    """

    def __init__(self, engine: EngineFace, sampling: Sampling, *, attempts: int = 3, seed: int = 0) -> None:
        check_writer(engine)
        self.reserve = room_for(sampling, engine, attempts=attempts)
        self.engine = engine
        self.sampling = msgspec.structs.replace(sampling, json_schema=SCHEMA)
        self.attempts = attempts if sampling.temperature > 0 else 1
        self.seed = seed
        self.content = {"sampling": self.sampling, "attempts": self.attempts, "seed": seed}

    def write(self, prompts: Mapping[Name, Prompt], sample: int = 0) -> Iterator[tuple[Name, Statement]]:
        """The name of each prompt with its statement, as soon as it is there; another `sample` is another text."""
        unread = list(prompts)
        for attempt in range(self.attempts):
            asked, unread = unread, []
            wanted = [prompts[name] for name in asked]
            seeds = [seed_of(self.seed, prompt, sample, attempt) for prompt in wanted]
            for place, completion in self.engine.generate_iter(wanted, self.sampling, seeds=seeds):
                statement = _read(completion)
                if statement.abstained == "unparsable" and attempt < self.attempts - 1:
                    unread.append(asked[place])
                else:
                    yield asked[place], statement
            if not unread:
                return


def _read(completion: Completion) -> Statement:
    """The statement of a text; it abstains where the text is not an object of strings, whole and by itself."""
    text = completion.text
    if completion.missing:
        return Statement(text, None, completion.missing)
    try:
        points = msgspec.json.decode(text.strip().encode(), type=dict[str, str])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return Statement(text, None, "unparsable")
    return Statement(text, {well_formed(point): well_formed(why) for point, why in points.items()})
