"""The HTTP face of an engine: what OpenAI's and SGLang's clients send, answered by an `AsyncFace`."""
