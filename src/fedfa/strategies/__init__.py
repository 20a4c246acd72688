"""Strategies: events in, orders out. One file per paper; ``base.py`` is what they share with the engines."""
