"""`adjudge bench grpo`: where the seconds of a GRPO step go."""
