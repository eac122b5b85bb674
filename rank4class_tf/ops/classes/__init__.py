"""Scores of classes: what they are made of, and many of them in bounded memory."""
