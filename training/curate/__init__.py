"""Igniting's data: preference pairs from debates, and principles sharpened against a writer of bad texts."""
