"""Tree of Writing's pipeline: texts disturbed to test a judge, and benchmarks built from texts (HoWToBench)."""
