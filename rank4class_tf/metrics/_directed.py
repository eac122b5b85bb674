"""Which way a metric is better."""


class Directed:
    """Part of all metrics that says which way they are better."""

    # Whether a higher value is better.
    higher_is_better: bool = True

    @property
    def _direction(self):
        # What callbacks of Keras 3 ask where they are not told.
        return "up" if self.higher_is_better else "down"
