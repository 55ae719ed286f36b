"""Tokens in, scores and tokens out: prompts, labels, KV cache, scheduler, runner and their faces."""
