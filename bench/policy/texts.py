"""What policies write to the prompts of an evaluation: each text once, kept as soon as it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from adjudge.bench.policy.policies import Asked, Policy
from adjudge.engine.completion import Completion, FinishReason
from adjudge.engine.devices import choose_device, choose_dtype
from adjudge.engine.face import EngineFace
from adjudge.engine.models.adapters import read_adapter
from adjudge.engine.models.sources import resolve, tokenizer_named
from adjudge.engine.sampling import Sampling
from adjudge.engine.text.prompt import Message, Prompt, Segment
from adjudge.engine.text.tokenizer import Tokenizer, well_formed
from adjudge.rewards.journal import Journal, content_key
from adjudge.rewards.judges.asking import seed_of
from adjudge.rewards.records.messages import text_of
from adjudge.rewards.records.rows import Row
from adjudge.training.once import once
from adjudge.training.prompts import messages

if TYPE_CHECKING:
    from adjudge.engine.engine import Engine


class Opening(msgspec.Struct, frozen=True):
    """What texts are asked for with: a prompt, and a system turn of the row's own, used where `Asked` has none.

    Of a conversation the prompt is the text, and `turns` are what it is of, (role, text), where there are several.
    """

    prompt: str
    system: str | None = None
    turns: tuple[tuple[str, str], ...] = ()


class Text(msgspec.Struct, frozen=True):
    """The `sample`-th text that a policy wrote to the prompt in that `place`; without one, how it `ended` says why."""

    place: int
    sample: int
    text: str | None
    ended: FinishReason
    tokens: int


class Kept(msgspec.Struct, frozen=True):
    """A text as the journal keeps it."""

    text: str | None
    ended: FinishReason
    tokens: int


class Writing(msgspec.Struct, frozen=True):
    """How texts are written. A text's seed is drawn from `seed`, its prompt and its number, whoever writes it."""

    asked: Asked
    sampling: Sampling
    seed: int = 0


def opening_of(row: Row, needed_by: str) -> Opening:
    """What a row asks with, as in training; raises AdjudgeError where its prompt is neither text nor conversation."""
    if not isinstance(row.columns.get("prompt"), list):
        return Opening(row.text("prompt", needed_by), row.optional_text("system", needed_by))
    said = messages(row)
    own = said.pop(0)["content"] if said[0]["role"] == "system" else row.optional_text("system", needed_by)
    turns = tuple((one["role"], one["content"]) for one in said)
    return Opening(text_of(said, row.place), own, turns if len(turns) > 1 else ())


def identity_of(policy: Policy, device: str, dtype: str) -> tuple[str, str | None, str]:
    """Of model and its tokens, adapter and number type; raises AdjudgeError for what is not there. Reads no weights."""
    number_type = str(choose_dtype(dtype, choose_device(device))).removeprefix("torch.")
    adapter = None if policy.adapter is None else read_adapter(policy.adapter).fingerprint
    model = Tokenizer(tokenizer_named(policy.model)).fingerprint_of(resolve(policy.model).fingerprint)
    return model, adapter, number_type


class Writer:
    """Has a policy write, on an engine that is opened when the first text is wanted that the journal has not."""

    def __init__(self, policy: Policy, writing: Writing, journal: Journal, *, device: str, dtype: str) -> None:
        self.policy, self.writing, self.journal = policy, writing, journal
        self.device, self.dtype = device, dtype
        self._who = identity_of(policy, device, dtype)

    def write(
        self, openings: Sequence[Opening], samples: range, written: Callable[[], object] = lambda: None
    ) -> list[Text]:
        """The texts to all prompts, those of one prompt together; equal prompts have the same, written once.

        `written` is called for each of them.
        """
        wanted = [(place, sample) for place in range(len(openings)) for sample in samples]
        keys = [self.key(openings[place], sample) for place, sample in wanted]

        def ask(new: list[int]) -> Iterator[tuple[int, Kept]]:
            return self._answers(openings, [wanted[number] for number in new])

        pack, unpack = msgspec.json.encode, msgspec.json.Decoder(Kept).decode
        texts = {}
        for number, kept in once(self.journal, keys, ask, pack=pack, unpack=unpack, ended=lambda text: text.ended):
            texts[number] = Text(*wanted[number], **msgspec.structs.asdict(kept))
            written()
        return [texts[number] for number in range(len(wanted))]

    def key(self, opening: Opening, sample: int) -> str:
        """The journal's key: everything that decides the text."""
        prompt, system = well_formed(opening.prompt), self.writing.asked.system_of(opening.system)
        own: dict[str, Any] = {} if system == self.writing.asked.system else {"system": well_formed(system or "")}
        own |= {"turns": [(role, well_formed(text)) for role, text in opening.turns]} if opening.turns else {}
        return content_key(policy=self._who, writing=self.writing, prompt=prompt, sample=sample, **own)

    def _answers(self, openings: Sequence[Opening], missing: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Kept]]:
        engine = self._opened()
        asked = [self._prompt(engine, openings[place]) for place, _ in missing]
        seeds = [seed_of(self.writing.seed, _plain(openings[place].prompt), sample, 0) for place, sample in missing]
        for number, completion in engine.generate_iter(asked, self.writing.sampling, seeds=seeds):
            yield number, _kept(completion)
        engine.sleep()  # the next one's memory

    def _prompt(self, engine: EngineFace, opening: Opening) -> Prompt | str:
        if not self.writing.asked.chat:
            return well_formed(opening.prompt)  # as a text, it has the model's own first tokens
        said = self.writing.asked.system_of(opening.system)
        system = [Message("system", _plain(said))] if said else []
        turns = opening.turns or (("user", opening.prompt),)
        return engine.chat([*system, *(Message(role, _plain(text)) for role, text in turns)])  # type: ignore[arg-type]

    def _opened(self) -> Engine:
        from adjudge.engine.engine import Engine

        return Engine(self.policy.model, adapter=self.policy.adapter, device=self.device, dtype=self.dtype)


def _kept(completion: Completion) -> Kept:
    whole = completion.finish_reason in ("stop", "length")
    text = well_formed(completion.text.strip()) if whole else None
    return Kept(text, completion.finish_reason, len(completion.token_ids))


def _plain(text: str) -> Prompt:
    return Prompt((Segment(well_formed(text)),))
