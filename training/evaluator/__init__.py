"""Judges of one's own: trained to score as people did (direct), or to prefer what they preferred (a reward model)."""
