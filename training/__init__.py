"""Data pipelines, trainers and agreement with people."""
