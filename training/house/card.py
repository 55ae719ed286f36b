"""The model card of a judge that was trained on texts made worse."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from adjudge.training.house.recipe import HouseRecipe
from adjudge.training.house.rows import ANCHORED, SCORED
from adjudge.training.run import Run


def card(recipe: HouseRecipe, texts: Sequence[int], done: Mapping[str, int], run: Run) -> str:
    """What the adapter is, what it was made of, and how it did on texts of unseen prompts, in Markdown."""
    licences = sorted({source.licence for source in recipe.sources})
    whose = "the scores of what the run came to, not yet averaged," if recipe.keep else "its scores"
    measured = (
        ""
        if run.before is None or run.after is None
        else f"\nOn what was made of texts of held-out prompts as the rows of training were, the rank correlation of"
        f" {whose} with the known ones is {run.after:.3f} (before training {run.before:.3f}).\n"
    )
    whom = "/".join(Path(recipe.keep_of).parts[-2:]) if recipe.keep_of else "what it went on from"
    kept = f" {recipe.keep:.0%} of {whom} is kept in its weights." if recipe.keep else ""
    start = recipe.policy.adapter
    before = "" if start is None else _before("It goes on from another adapter", Path(start))
    if recipe.keep_of is not None and _plain(_known(Path(recipe.keep_of))) not in _plain(before):
        before += _before(f"It is averaged with another adapter, {whom}", Path(recipe.keep_of))
    taught = (
        "\nOf other texts, which stand beside some of them, it has learnt the scores that a teacher, no person, gave."
        if done.get(SCORED)
        else ""
    )
    if done.get(ANCHORED):
        taught += "\nOf other texts it was to keep the scores that it gave before this run."
    if recipe.mean_head is not None:
        taught += (
            f"\nA head of layer {recipe.mean_head.layer} tells its answer the mean of all that it is shown, along a"
            " direction that tells a worse text from a\nbetter one, by"
            f" {recipe.mean_head.strength:g} points of the score before training."
        )
    unknown = start is not None and not (Path(start) / "README.md").is_file()
    whence = "" if unknown else "No person's score went into it: it has read"
    shown = "" if unknown else " Which of two whole stories people like better it was never shown."
    kind = "trained from" if recipe.policy.method == "full" else "an adapter for"
    return f"""# A judge of stories, {kind} {recipe.policy.model}

It scores stories from 1 to 5 where adjudge's pointwise and pairwise judges read their answers, without writing.
{whence or "It has read"} stories as their authors left them, and the same stories made worse by known steps, and has
learnt to tell how far each had been taken down.{taught}

- Texts: {texts[0]} to train on, {texts[1]} of other prompts held out; {run.step} steps of
  {recipe.optimiser.rows_per_step} rows, seed {recipe.seed}.{kept}
- Licences of the texts: {", ".join(licences)}{" (of this run; see below for the one before)" * bool(before)}.
{measured}
## Texts

{_table(("source", "licence", "by"), [(Path(s.path).name, s.licence, s.attribution) for s in recipe.sources])}

## Steps down

{_table(("step", "times"), [(name, str(count)) for name, count in sorted(done.items())])}

## What it cannot do

What it was taught is to tell broken stories from whole ones.{shown} It was
made for English; of other languages it knows only that an English story was asked for.
{before}"""


def _before(how: str, adapter: Path) -> str:
    """What is known of an adapter that has its share in what a run leaves."""
    text = re.sub(r"^#", "###", _known(adapter), flags=re.MULTILINE)
    return f"\n## Before this run\n\n{how}:\n\n{text}"


def _known(adapter: Path) -> str:
    card = adapter / "README.md"
    return card.read_text(encoding="utf-8") if card.is_file() else "Nothing is known of its texts or their licences.\n"


def _plain(text: str) -> str:
    return re.sub(r"^#+ ", "", text, flags=re.MULTILINE).strip()


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(' '.join(cell.replace('|', '/').split()) for cell in line)} |" for line in lines)
