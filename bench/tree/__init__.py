"""`adjudge bench tree`: Tree of Writing's analyses."""
