"""An engine on the other side of HTTP."""

OF_A_SERVER = {
    "tokenizer": "has its own",
    "max_context": "knows its own",
    "max_concurrency": "takes all at once",
    "timeout": "is waited for",
    "retries": "is asked once",
}
"""What only a `RemoteEngine` is told, and why a model that is opened here is not."""
