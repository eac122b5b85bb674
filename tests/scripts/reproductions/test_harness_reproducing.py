"""What the reproductions share."""

import pytest

from scripts import reproducing


def test_deviations_are_over_one_less():
    # 1 and 2 are half a unit off their mean: the root of (1/4 + 1/4) / 1.
    assert reproducing.plus_minus([1, 2]) == "1.500 ± 0.707"
    assert reproducing.plus_minus([1, 2], digits=1) == "1.5 ± 0.7"
    assert reproducing.plus_minus([2]) == "2.000"


@pytest.mark.parametrize(("patience", "last"), [(10, 7), (2, 6)])
def test_the_weights_of_the_best_epoch_stay(patience, last):
    class Model:
        weights = 0

        def get_weights(self):
            return self.weights

        def set_weights(self, weights):
            self.weights = weights

    model = Model()
    figures = {2: 0.3, 4: 0.5, 6: 0.4, 7: 0.1}
    history, best = reproducing.train_to_best(
        model,
        epochs=7,
        evaluate_every=2,
        train=model.set_weights,
        evaluate=lambda: {"ndcg": figures[model.weights]},
        metric="ndcg",
        patience=patience,
    )
    assert [point["epoch"] for point in history] == [e for e in (2, 4, 6, 7) if e <= last]
    assert (best["epoch"], best["ndcg"], model.weights) == (4, 0.5, 4)
