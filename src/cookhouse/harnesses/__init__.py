"""Weights of cookhouse as models of other evaluation harnesses: Inspect AI and lm-evaluation-harness.

Each has its module, which needs the harness installed; nothing here imports one by itself.
"""
