"""Scores of classes: interactions, and scores of many classes in bounded memory."""
