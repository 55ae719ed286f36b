"""`adjudge bench judge`: the engine beside others that answer the same questions or write the same texts."""
