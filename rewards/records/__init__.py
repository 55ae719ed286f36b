"""What is judged and what comes out: pairs, items, groups, verdicts, and how files hold them."""
