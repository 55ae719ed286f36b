"""`adjudge models`: what can be named after --model."""

from __future__ import annotations


def models() -> None:
    """List the models that can be named, and where they are kept."""
    from adjudge.commands.models import print_models

    print_models()
