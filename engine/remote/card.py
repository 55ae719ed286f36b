"""Which server stands at an address, and which of its models is meant."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from adjudge.engine.errors import NoServer, RemoteError
from adjudge.engine.remote.transport import NoAnswer, Refused, Transport, Trouble

Kind = Literal["adjudge", "vllm", "sglang", "openai"]


class ModelCard(msgspec.Struct, frozen=True):
    """What a server says of a model. `max_model_len` is its context; the last four only our own server tells.

    `parent` is what vLLM lays an adapter over, whose context its own card does not have.
    """

    id: str
    owned_by: str = ""
    max_model_len: int | None = None
    parent: str | None = None
    fingerprint: str | None = None
    adapter: str | None = None
    dtype: str | None = None
    max_answers: int | None = None

    @property
    def kind(self) -> Kind:
        """What kind of server the card is from; "openai" stands for any that does not say."""
        return next((kind for kind in get_args(Kind) if kind == self.owned_by), "openai")


class ModelListReply(msgspec.Struct, frozen=True):
    """A reply of /v1/models."""

    data: list[ModelCard]


async def read_card(transport: Transport, model: str | None) -> ModelCard:
    """The card of `model`, or of the only model there is; raises RemoteError where that is none or several."""
    where = transport.base_url
    try:
        listed = await transport.get("/v1/models", msgspec.json.Decoder(ModelListReply).decode)
    except (NoAnswer, Refused) as error:
        kind = NoServer if isinstance(error, NoAnswer) and error.reason == "timeout" else RemoteError
        if isinstance(error, Trouble) and error.alive:
            raise kind(f"{error}: it is busy; open the engine later, or with more retries=") from error
        raise kind(f"{error}: start the server (`adjudge serve`), or correct the address") from error
    cards = {card.id: card for card in listed.data}
    names = ", ".join(cards)
    if model is None and len(cards) != 1:
        raise RemoteError(f"{where} serves {names or 'no model'}: name the one that is meant as the model")
    if model is not None and model not in cards:
        raise RemoteError(
            f"{where} has no model {model!r}, only {names or 'none at all'}: name one of these as the model"
        )
    card = cards[model] if model is not None else listed.data[0]
    if card.max_model_len is None and card.parent in cards:
        return msgspec.structs.replace(card, max_model_len=cards[card.parent].max_model_len)
    return card
