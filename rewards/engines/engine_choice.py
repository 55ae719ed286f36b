"""Which engine: what specifications, recipes and commands say of it alike, and how it is opened."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from adjudge.engine.errors import AdjudgeError
from adjudge.engine.remote import OF_A_SERVER
from adjudge.engine.remote.address import without_secrets
from adjudge.rewards.engines.lending import POLICY

if TYPE_CHECKING:
    from adjudge.engine.face import EngineFace


class EngineChoice(msgspec.Struct, frozen=True):
    """Which model is opened, and how: `EngineSpec` says what each field is."""

    model: str | None = None
    adapter: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    max_batch_tokens: Annotated[int, Meta(ge=1)] | None = None
    kv_cache_gb: Annotated[float, Meta(gt=0)] | None = None
    url: str | None = None
    tokenizer: str | None = None
    max_context: Annotated[int, Meta(ge=2)] | None = None
    max_concurrency: Annotated[int, Meta(ge=1)] | None = None
    timeout: Annotated[float, Meta(gt=0)] | None = None
    retries: Annotated[int, Meta(ge=0)] | None = None

    @property
    def given(self) -> dict[str, Any]:
        """What is not as usual besides `model` and `url`: how a server is asked, or how a model is opened here."""
        fields = zip(msgspec.structs.asdict(self).items(), self.__struct_defaults__, strict=True)
        return {name: value for (name, value), usual in fields if value != usual and name not in ("model", "url")}

    def check_together(self, said: Callable[[str], str] = str) -> None:
        """Raise AdjudgeError for what is a server's own matter, or a server's alone; fields as the user `said` them."""
        theirs = [said(name) for name in self.given if name not in OF_A_SERVER]
        if self.url is not None and theirs:
            server = f"the engine is a server, {without_secrets(self.url)} ({said('url')})"
            raise AdjudgeError(f"{server}: leave out {' and '.join(theirs)}, which it decides itself")
        for name in self.given:
            if self.url is None and name in OF_A_SERVER:
                raise AdjudgeError(
                    f"{said(name)} is for a server ({said('url')}): a model here {OF_A_SERVER[name]}, leave it out"
                )

    @property
    def of_policy(self) -> bool:
        """Whether it is the policy's own base weights."""
        return self.url is None and self.model == POLICY

    def open_anew(self) -> EngineFace:
        """An engine that nobody else has."""
        if self.url is not None:
            from adjudge.engine.remote.remote_engine import RemoteEngine

            return RemoteEngine(self.url, self.model, api_key=os.environ.get("ADJUDGE_API_KEY"), **self.given)
        from adjudge.engine.engine import Engine

        assert self.model is not None
        return Engine(self.model, **self.given)
