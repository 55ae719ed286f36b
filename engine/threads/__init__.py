"""Many threads, tasks and processes over one engine."""
