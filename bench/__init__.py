"""Benchmarks that a person can run: ``python -m bench NAME``. Programs, not tests: they judge nothing."""
