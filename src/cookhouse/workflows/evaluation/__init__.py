"""Evaluations that stand alone: stages that ask and grade benchmarks, and compare models."""
