"""`adjudge train`: policies and judges, trained and compared."""

from __future__ import annotations

from adjudge.commands.lazy import Commands

train = Commands(
    help="Train policies (grpo, sft) and judges (direct, reward, house), and compare them.", no_args_is_help=True
)
train.add_lazily(
    {
        "grpo": ("train_policies:train_grpo", "Train a policy with GRPO on a reward of judges and checks."),
        "sft": (
            "train_policies:train_sft",
            "Train a policy on the responses of a file: a cold start before GRPO, or the baseline beside it.",
        ),
        "curves": (
            "train_curves:train_curves",
            "Draw a policy's reward, KL, length and abstention over its steps, or a judge's loss and agreement.",
        ),
        "fields": (
            "train_recipes:train_fields",
            "Show what a recipe can say: every table and field, what may stand in it, and what holds where it is left"
            " out.",
        ),
        "presets": (
            "train_recipes:train_presets",
            "List the recipes of the papers: what a paper does not give is ours, and marked so.",
        ),
        "direct": (
            "train_judges:train_direct",
            "Train a judge that scores without writing: its answer distribution becomes that of people's scores.",
        ),
        "reward": (
            "train_judges:train_reward",
            "Train a reward model (Bradley-Terry) on which of two responses people preferred.",
        ),
        "house": (
            "train_judges:train_house",
            "Train a judge of stories without people's scores: it learns how far a text was taken down from its"
            " author's.",
        ),
        "agreement": (
            "train_judges:train_agreement",
            "Tell how well a trained judge agrees with people on its held-out rows, beside what it must beat.",
        ),
    }
)
