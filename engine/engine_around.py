"""`EngineAround`: what engines have in common that stand before another."""

from __future__ import annotations

from adjudge.engine.face import EngineFace
from adjudge.engine.models.reward_head import RewardHead


class EngineAround(EngineFace):
    """An engine before `engine`, whose name and model it has; what it changes about the verbs, its class says."""

    def __init__(self, engine: EngineFace) -> None:
        super().__init__(engine.tokenizer)
        self.name, self.dtype, self.stats = engine.name, engine.dtype, engine.stats
        self._engine = engine
        self._compile_labels, self.byte_table = engine._compile_labels, engine.byte_table  # 0.5 s to make anew

    @property
    def fingerprint(self) -> str:  # type: ignore[override]
        """That of the engine, which changes with its weights."""
        return self._engine.fingerprint

    @property
    def adapter(self) -> str | None:  # type: ignore[override]
        """That of the engine."""
        return self._engine.adapter

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that fits."""
        return self._engine.max_prompt_tokens

    @property
    def reward_head(self) -> RewardHead | None:
        """That of the engine."""
        return self._engine.reward_head

    def require_embeddings(self) -> None:
        """As the engine does."""
        self._engine.require_embeddings()

    def require_rewards(self) -> None:
        """As the engine does."""
        self._engine.require_rewards()
