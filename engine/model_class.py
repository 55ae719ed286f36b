"""Which of transformers' classes opens a model: with a language-model head, with a reward head, or with none."""

from __future__ import annotations

from typing import Any

from adjudge.engine.errors import ModelUnsupported


def model_class(name: str, config: Any) -> Any:
    """The auto class for the first of a configuration's `architectures`; a causal language model where it names none.

    Raises ModelUnsupported for a classifier of several labels.
    """
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification

    architecture = next(iter(getattr(config, "architectures", None) or ()), "")
    if architecture.endswith("ForSequenceClassification"):
        if config.num_labels != 1:
            raise ModelUnsupported(
                f"{name} is a classifier of {config.num_labels} labels ({architecture}), not a reward model: pass one"
                " that was saved with num_labels 1"
            )
        return AutoModelForSequenceClassification
    return AutoModel if architecture.endswith("Model") and "LMHead" not in architecture else AutoModelForCausalLM
