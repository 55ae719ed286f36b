"""The KV cache: a radix tree over blocks."""
