"""Requests of clients, by kind: training, saves and samples of the base models on offer, and traces of it all."""
