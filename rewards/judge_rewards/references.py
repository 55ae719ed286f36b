"""What responses are held against: a reference that is given, or one that a base model writes once for each prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast, get_args

import msgspec

from adjudge.engine.checking import at_least
from adjudge.engine.errors import AdjudgeError
from adjudge.engine.face import EngineFace, checked_engine
from adjudge.engine.sampling import Sampling
from adjudge.engine.score import UNKEPT, Reason
from adjudge.engine.text.prompt import Message, Prompt, Segment
from adjudge.engine.text.tokenizer import well_formed
from adjudge.engine.waiting import unhurried
from adjudge.rewards.engines.specification import EngineSpec, OpenedHere, awake
from adjudge.rewards.journal import Journal, content_key
from adjudge.rewards.judges.asking import check_writer, checked_sampling, room_for, seed_of
from adjudge.rewards.records.group import Group
from adjudge.rewards.records.messages import Text, prompt_of

Role = Literal["system", "user", "assistant"]

STORY = Sampling(max_tokens=1024, temperature=0.8, top_p=0.95)
"""How a base model writes references (the settings are ours)."""


class Referenced(msgspec.Struct, frozen=True):
    """The reference of a group; its `text` is None where it could not be written, and `abstained` says why.

    Both are None where none is needed: for a group without responses.
    """

    text: str | None
    abstained: Reason | None = None


class Reference(ABC):
    """Where the references of groups come from."""

    @abstractmethod
    def of(self, groups: Sequence[Group], journal: Journal | None = None) -> list[Referenced]:
        """The reference of each group, in order."""

    @property
    def engines(self) -> tuple[EngineFace, ...]:
        """The engines it has open."""
        return ()


class StaticReference(Reference):
    """The group's own reference (`Group.reference`), or the text of its column of another name.

    Raises AdjudgeError naming the prompt and the column of a group that has none.
    """

    def __init__(self, column: str = "reference") -> None:
        self.column = column

    def of(self, groups: Sequence[Group], journal: Journal | None = None) -> list[Referenced]:
        """The reference of each group, in order."""
        return [Referenced(self._text(group, number)) for number, group in enumerate(groups, 1)]

    def _text(self, group: Group, number: int) -> str:
        place = group.place(number)
        text = group.reference if self.column == "reference" else group.shared(self.column, place)
        if text is None or text == "":
            raise AdjudgeError(
                f'{place}: "{self.column}" is missing: give a text to hold responses against, or let'
                " a base model write it (DynamicReference)"
            )
        if not isinstance(text, str):
            raise AdjudgeError(f'{place}: "{self.column}" is {type(text).__name__}: write it as text')
        return text


class DynamicReference(Reference):
    """What the base model writes to the prompt, once: kept in memory (`known`), and in the journal where there is one.

    It is asked what the policy is asked: the turns of the group's conversation, or where the group has none the prompt
    as a user's turn; with `chat` False as the beginning of a text, which is never shortened. `engine` is the base
    model's, open, or a specification of it, or its name. The text's seed is drawn from `seed` and the prompt, so that a
    prompt has the same reference in every run and in any company. A blank text is written again with another seed,
    `attempts` times in all; then, and where the prompt is too long, has other roles than system, user and assistant, or
    time runs out, the group abstains; where that lies in the texts it is kept as a text would be. Of processes that
    share a journal all use the text that it has kept. Raises AdjudgeError for settings that make no sense.
    """

    def __init__(
        self,
        engine: EngineFace | EngineSpec | str,
        sampling: Sampling = STORY,
        *,
        seed: int = 0,
        attempts: int = 3,
        chat: bool = True,
    ) -> None:
        at_least(1, attempts=attempts)
        given = EngineSpec(engine) if isinstance(engine, str) else engine
        self.spec = given if isinstance(given, EngineSpec) else None
        opened = None if isinstance(given, EngineSpec) else checked_engine(given)
        self.sampling = checked_sampling(sampling) or STORY
        self.seed, self.attempts, self.chat = seed, attempts, chat
        self._here: OpenedHere[EngineFace] = OpenedHere(opened)
        self.known: dict[str, Referenced] = {}
        if opened is not None:
            self._check(opened)

    @property
    def engine(self) -> EngineFace:
        """The base model's engine, open; one from a specification is this process's own, and awake."""
        engine = self._here.or_open(self._open)
        return engine if self.spec is None else awake(engine)

    def _open(self) -> EngineFace:
        assert self.spec is not None
        opened = self.spec.open()
        self._check(opened)
        return opened

    def _check(self, engine: EngineFace) -> None:
        check_writer(engine)
        room_for(self.sampling, engine, attempts=self.attempts)

    @property
    def engines(self) -> tuple[EngineFace, ...]:
        """The base model's engine, if it is open."""
        return () if self._here.opened is None else (self._here.opened,)

    def of(self, groups: Sequence[Group], journal: Journal | None = None) -> list[Referenced]:
        """The reference of each group, in order; those not known yet are written together."""
        return self._of(groups, journal, lambda: None)

    def prepare(
        self, prompts: Sequence[Text], journal: Journal | None = None, *, each: Callable[[], object] = lambda: None
    ) -> None:
        """Write what is not known yet of these prompts, texts or conversations as a trainer's data set has them.

        Called before training it leaves nothing to be written in a step, in which a short deadline would pass
        meanwhile. `each` is called whenever a text is there.
        """
        asked = [prompt_of(prompt, f"prompts[{number}]") for number, prompt in enumerate(prompts)]
        self._of([Group(text, ("",), conversation=turns) for text, turns in asked], journal, each)

    def _of(self, groups: Sequence[Group], journal: Journal | None, each: Callable[[], object]) -> list[Referenced]:
        keys = [self.key(group) for group in groups]
        unknown = {
            key: group
            for key, group in zip(keys, groups, strict=True)
            if key not in self.known and group.responses  # nobody needs the reference of a group that is empty
        }
        if journal is not None:  # which has texts, and why others could not be written
            self.known |= {key: _kept(journal, raw) for key, raw in journal.get(unknown).items()}
        reasons = self._write({key: group for key, group in unknown.items() if key not in self.known}, journal, each)
        return [self.known.get(key) or Referenced(None, reasons.get(key)) for key in keys]

    def key(self, group: Group) -> str:
        """The journal's key: everything that decides the text."""
        asked: dict[str, Any] = {"prompt": well_formed(group.prompt)}
        if group.conversation:
            asked = {"conversation": [(role, well_formed(text)) for role, text in group.conversation]}
        elif not self.chat:
            asked["chat"] = False
        return content_key(
            reference="dynamic",
            **self.engine.content,
            truncation=self.engine.max_prompt_tokens,
            sampling=self.sampling,
            seed=self.seed,
            attempts=self.attempts,
            **asked,
        )

    def _keep(self, key: str, found: Referenced, journal: Journal | None) -> None:
        if journal is not None:  # another process may have been first
            found = _kept(journal, journal.put(key, msgspec.json.encode(found if found.text is None else found.text)))
        self.known[key] = found

    @unhurried()
    def _write(
        self, groups: dict[str, Group], journal: Journal | None, each: Callable[[], object]
    ) -> dict[str, Reason]:
        """Have texts written, by their keys; the reasons of those that could not be.

        However long that takes: a trainer's deadline does not wait for it, and who asks for these prompts again finds
        them written.
        """
        reserve = room_for(self.sampling, self.engine, attempts=self.attempts)
        reasons: dict[str, Reason] = {key: "unsupported" for key, group in groups.items() if not _is_askable(group)}
        asked = {key: self._prompt(group, reserve) for key, group in groups.items() if key not in reasons}
        for attempt in range(self.attempts if self.sampling.temperature > 0 else 1):
            keys = [key for key in asked if key not in self.known and reasons.get(key) in (None, "unparsable")]
            wanted = [asked[key] for key in keys]
            seeds = [seed_of(self.seed, _data(one) if isinstance(one, str) else one, 0, attempt) for one in wanted]
            for place, completion in self.engine.generate_iter(wanted, self.sampling, seeds=seeds):
                key = keys[place]
                if completion.missing or not completion.text.strip():
                    reasons[key] = completion.missing or "unparsable"
                else:
                    reasons.pop(key, None)
                    self._keep(key, Referenced(well_formed(completion.text.strip())), journal)
                    each()
        for key, why in reasons.items():
            if why not in UNKEPT:
                self._keep(key, Referenced(None, why), journal)
        return reasons

    def _prompt(self, group: Group, reserve: int) -> Prompt | str:
        """What the base model is asked for a group."""
        if not group.conversation and not self.chat:
            return well_formed(group.prompt)  # as a text, it has the model's own first tokens
        turns = [*group.conversation] or [("user", group.prompt)]
        begun = [Segment(well_formed(turns.pop()[1]), cut="middle")] if turns[-1][0] == "assistant" else []
        asked = self.engine.chat([Message(cast(Role, role), _data(text)) for role, text in turns])
        [fitted], _ = self.engine.fit([Prompt((*asked.segments, *begun))], reserve)
        return fitted


def _kept(journal: Journal, raw: bytes) -> Referenced:
    found = journal.decoded(raw, str | Referenced)
    return Referenced(found) if isinstance(found, str) else found


def _is_askable(group: Group) -> bool:
    """Whether engines know the roles of its conversation, and one who is answered is among them."""
    roles = [role for role, _ in group.conversation]
    return not roles or (set(roles) <= set(get_args(Role)) and roles != ["assistant"])


def _data(text: str) -> Prompt:
    return Prompt((Segment(well_formed(text), cut="middle"),))
