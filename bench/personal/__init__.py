"""`adjudge bench personal`: PerSE's studies of one reader's taste."""
