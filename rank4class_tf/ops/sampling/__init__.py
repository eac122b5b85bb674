"""Random numbers, random subsets, and work by blocks of classes."""
