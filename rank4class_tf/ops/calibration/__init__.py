"""Probabilities that mean what they say, and sets that hold the right class."""
