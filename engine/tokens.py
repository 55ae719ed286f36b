"""Token ids in a row, as prompts, texts and labels are to the engine."""

Tokens = tuple[int, ...]
