"""Projections on the (n, k)-simplex."""
