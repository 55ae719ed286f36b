"""Rewards that ask a judge, and the references they compare with."""
