"""`/classify`: the reward that a reward model gives to each input, in the form of vLLM's servers.

The fields `input`, `model`, `priority` and `use_activation` and the answer's fields but `reason` are vLLM's (its
classification API), which has one number among `probs` for a model with one label. It is the reward itself, a logit:
vLLM's own is one where `use_activation` is false.
"""

from __future__ import annotations

import time
import uuid
from typing import Annotated

import msgspec
from litestar import post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from adjudge.engine.http.inputs import InputRequest, embedded
from adjudge.engine.http.service import AnyRequest, Service
from adjudge.engine.http.text_request import Only, Usage, refuse_others
from adjudge.engine.model_reward import ModelReward
from adjudge.engine.score import Reason

LABEL = "LABEL_0"
"""What transformers calls the only label of a reward model."""


class ClassifyRequest(InputRequest, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Whole conversations in the model's chat template: as token ids, since special tokens in texts are plain text."""

    use_activation: Annotated[bool | None, Only(False)] = None


class Classified(msgspec.Struct, frozen=True):
    """The reward of one input, alone in `probs`; none there where it abstained."""

    index: int
    label: str
    probs: list[float]
    num_classes: int = 1
    reason: Reason | None = None


class ClassifyResponse(msgspec.Struct, frozen=True):
    """A reward for each input, in order."""

    id: str
    created: int
    model: str
    data: list[Classified]
    usage: Usage
    object: str = "list"


@post("/classify", status_code=200, tags=["rewards"])
async def classify(
    data: JSONBody[ClassifyRequest], request: AnyRequest, service: NamedDependency[Service]
) -> ClassifyResponse:
    """Read the reward of every input."""
    service.check_model(data.model)
    refuse_others(data)
    face = service.engine.face
    face.require_rewards()
    found: list[ModelReward]
    found, computed = await embedded(service, request, data, face.read_for_rewards, ModelReward.of)
    return ClassifyResponse(
        f"classify-{uuid.uuid4().hex}",
        int(time.time()),
        service.model,
        [
            Classified(place, LABEL, [] if reward.value is None else [reward.value], reason=reward.reason)
            for place, reward in enumerate(found)
        ],
        Usage.of([(reward.prompt_tokens, reward.reason) for reward in found], computed),
    )
