"""Which of transformers' classes opens a model: with a language-model head, with a reward head, or with none.

Of a model that also reads images, transformers knows no class of its text part's alone for all types: it is opened
whole, and its decoder reads texts.
"""

from __future__ import annotations

from typing import Any

from adjudge.engine.errors import ModelUnsupported


def model_class(name: str, config: Any) -> Any:
    """The auto class for the first of a configuration's `architectures`; a causal language model where it names none.

    Raises ModelUnsupported for a classifier of several labels.
    """
    from transformers import (
        AutoModel,
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        AutoModelForSequenceClassification,
    )
    from transformers.models.auto import modeling_auto as auto

    architecture = next(iter(getattr(config, "architectures", None) or ()), "")
    if architecture.endswith("ForSequenceClassification"):
        if config.num_labels != 1:
            raise ModelUnsupported(
                f"{name} is a classifier of {config.num_labels} labels ({architecture}), not a reward model: pass one"
                " that was saved with num_labels 1"
            )
        return AutoModelForSequenceClassification
    if architecture.endswith("Model") and "LMHead" not in architecture:
        return AutoModel
    images = auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.keys() - auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.keys()
    return AutoModelForImageTextToText if config.model_type in images else AutoModelForCausalLM
