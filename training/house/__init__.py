"""A judge trained without people's scores: texts of a known licence, made worse by known amounts."""
