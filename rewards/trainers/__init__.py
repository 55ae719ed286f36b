"""Rewards as other projects' trainers call them: TRL, verl, OpenRLHF, slime; none of these is imported here."""
