"""Readers with a taste of their own: their reviews grouped, made anonymous, summed up and trained on (PerSE)."""
