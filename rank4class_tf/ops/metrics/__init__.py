"""Metrics as functions of ranks."""
