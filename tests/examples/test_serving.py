import numpy as np

from examples import serving as example


def test_serves_names_probabilities_and_sets(tmp_path, capsys):
    answers = example.main(["--epochs", "4", "--out", str(tmp_path)])
    assert (tmp_path / "digits" / "saved_model.pb").exists()
    right = [name.encode() for name in np.array(example.NAMES)[answers["right"]]]
    assert np.mean(answers["class_names"][:, 0] == right) > 0.6  # Chance is 0.1.
    before, after = answers["errors"]
    assert after < 0.1 < before
    p = answers["probabilities"]
    assert ((p >= 0) & (p <= 1)).all() and (np.diff(p, axis=1) <= 0).all()
    # 180 images give the threshold.
    shown = np.arange(3) < answers["set_sizes"][:, np.newaxis]
    in_set = ((answers["class_names"] == np.array(right)[:, np.newaxis]) & shown).any(1)
    assert np.mean(in_set | (answers["set_sizes"] > 3)) > 0.95
    assert capsys.readouterr().out.count("*") >= 10
