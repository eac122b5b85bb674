"""Ranks, exact and soft."""
