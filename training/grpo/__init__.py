"""GRPO from a recipe: rewards, guards, the trainer around TRL's, and replaying what was paid."""
