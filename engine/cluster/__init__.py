"""Replicas of an engine on Ray, behind one face."""
