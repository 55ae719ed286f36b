"""The judges: what each asks of a model, and what it concludes from the answers."""
