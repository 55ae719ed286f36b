"""Texts in, verdicts and rewards out: judges, reward composition, journal, trainer adapters."""
