"""Proof by running: the real engine, with a series and without it."""
