"""Benchmarks: problems with an answer that is graded, asked of any model."""
