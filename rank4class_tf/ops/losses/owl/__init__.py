"""Ordered weighted losses, and stochastic negative mining."""
