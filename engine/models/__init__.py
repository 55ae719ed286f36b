"""Which weights a model has: where they come from, adapters beside them, and how they are exchanged."""
