"""`adjudge bench policy`: trained policies against their base model and people."""
