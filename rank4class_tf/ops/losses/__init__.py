"""Losses as functions of `Lists`."""
