"""The example of wrong labels, in a short form."""

import numpy as np

from examples import noisy_labels as example


def test_labels_are_wrong_for_training_and_validation_only():
    right, wrong = example.split(0, 3), example.split(40, 3)
    for part, (images, labels) in enumerate(wrong):
        np.testing.assert_array_equal(images, right[part][0])
        truth = right[part][1]
        is_wrong = labels != truth
        np.testing.assert_array_equal(labels[is_wrong], example.LOOKALIKE[truth[is_wrong]])
        low, high = (0.3, 0.5) if part < 2 else (0, 0)
        assert low <= is_wrong.mean() <= high


def test_table_picture_and_sentence(tmp_path, monkeypatch, capsys):
    keep = ("softmax", "Rankmax")
    monkeypatch.setattr(example, "LOSSES", {name: example.LOSSES[name] for name in keep})
    monkeypatch.setattr(example, "LEVELS", (0, 20))
    picture = tmp_path / "picture.png"
    example.main(seeds=3, epochs=3, picture=str(picture))
    output = capsys.readouterr().out
    assert "softmax  " in output and "20 % wrong labels: Rankmax is " in output
    assert picture.stat().st_size > 1000
