"""Schemas for texts that have a form."""

IMPOSSIBLE = {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}, "required": ["a"]}
"""A schema of which one finds out on the way that nothing has it."""
