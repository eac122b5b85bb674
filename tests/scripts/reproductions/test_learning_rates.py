"""The study of learning rates, in a short form."""

import json

import numpy as np
import pytest

from scripts.reproductions import learning_rates, noisy_labels
from scripts.reproductions.stacked_training import Settings, Trainer


def test_rows_of_known_figures():
    rates = np.array([0.1, 0.3, 1.0])
    # [part, rate, seed]: softmax is best at the third rate, the other loss at the first.
    softmax = [[[0.5], [0.6], [0.7]], [[0.4], [0.5], [0.6]]]
    other = [[[0.9], [0.895], [0.2]], [[0.8], [0.7], [0.3]]]
    assert learning_rates.row("A", other, softmax, rates) == [
        "`A`", "0.1", "0.1 to 0.3", "0.800", "0.300"
    ]  # fmt: skip
    lines = learning_rates.summary({"task": {"SoftmaxLoss": softmax, "A": other}})
    assert lines[-1] == "| `A` | 0.1 (-0.500) |"


def test_sgd_takes_the_steps_of_keras():
    from tensorflow import keras

    dataset = noisy_labels.digits()
    problem = noisy_labels.problem(dataset, np.eye(10), 0)
    loss = noisy_labels.as_function(noisy_labels.losses.SoftmaxLoss())
    trainer = Trainer(loss, None, 64, 1, "sgd")
    one, zero = np.array([0.1]), np.zeros(1)
    trained = trainer.train(noisy_labels.stack(dataset, [problem], None), Settings(one, zero, zero))
    rng = np.random.default_rng([7, 0])
    bound = (6 / (64 + 10)) ** 0.5
    model = keras.Sequential([keras.layers.Input((64,)), keras.layers.Dense(10)])
    model.set_weights([rng.uniform(-bound, bound, (64, 10)), np.zeros(10)])
    model.compile(
        keras.optimizers.SGD(0.1, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    order = rng.permutation(1077)[: 1077 // 64 * 64]
    model.fit(
        dataset.features[problem.rows[0][order]],
        problem.labels[0][order],
        batch_size=64,
        shuffle=False,
        verbose=0,
    )
    np.testing.assert_allclose(trained.last[0][0], model.get_weights()[0], atol=1e-5)


@pytest.mark.slow
def test_short_form(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(learning_rates, "RATES", {"sgd": np.array([1e-4, 1e-1])})
    call = f"--losses RankmaxLoss --optimizers sgd --seeds 0 1 --out {tmp_path}".split()
    learning_rates.main(call)
    text = (tmp_path / "results.md").read_text()
    assert text in capsys.readouterr().out + "\n"
    found = json.loads((tmp_path / "digits-sgd-RankmaxLoss.json").read_text())["ndcg"]
    assert np.shape(found) == (2, 2, 2)
    low, high = np.mean(found[1], axis=1)
    assert low < 0.7 < high
