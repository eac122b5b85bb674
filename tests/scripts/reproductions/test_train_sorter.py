"""The lists, the measures and the training of sorters."""

import json

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from rank4class_tf import layers
from scripts.reproductions import sorting
from scripts.reproductions import train_sorter as script


def test_kinds_of_lists(rng):
    lists = sorting.draw_lists(rng, 5000, 40)
    assert lists.shape == (5000, 40) and lists.dtype == np.float32

    def share(condition):
        return pytest.approx(np.mean(condition), abs=0.02)

    def evenly_spaced(x):
        steps = np.diff(x, axis=1)
        return np.ptp(steps, axis=1) < 1e-5

    rising = np.abs(lists - np.linspace(-1, 1, 40)).max(axis=1) < 1e-6
    assert share(rising) == 0.1
    assert share(evenly_spaced(lists)) == 0.2
    assert share(evenly_spaced(np.sort(lists, axis=1))) == 0.3
    # One of ten is normal; of two, only the items behind the first s are.
    assert share((np.abs(lists[:, :1]) > 1)[:, 0]) == 0.1 * 2 * scipy.stats.norm.sf(1)
    assert share(np.abs(lists[:, -1]) > 1) == 0.3 * 2 * scipy.stats.norm.sf(1)


def test_spaced_items_and_then_uniform_ones(rng):
    """The kind with s evenly spaced items, shuffled, in front."""

    class OneKind:
        def __getattr__(self, name):
            return getattr(rng, name)

        def integers(self, *args, size):
            return np.full(size, 8) if args == (sorting.KINDS,) else np.full(size, 7)

    lists = sorting.draw_lists(OneKind(), 50, 20)
    steps = np.diff(np.sort(lists[:, :7], axis=1), axis=1)
    assert np.ptp(steps, axis=1).max() < 1e-6
    assert (np.abs(np.diff(lists[:, :7], axis=1)).std(axis=1) > 1e-6).any()
    assert 0 <= lists[:, :7].min() and lists[:, :7].max() < 1
    assert np.ptp(lists[:, 7:]) > 1.8


def test_exact_ranks_against_scipy(rng):
    scores = np.concatenate([rng.standard_normal((5, 30)), rng.integers(6, size=(5, 30))])
    expected = scipy.stats.rankdata(-scores, axis=1)
    np.testing.assert_array_equal(sorting.exact_ranks(scores), expected)


def test_measures_of_the_handcrafted_sorter():
    """The paper has 0.0350, this mixture in the mean 0.0344."""
    figures = sorting.measure(layers.SigmoidSorter(0.1), count=2000)
    assert figures["l1_100"] == pytest.approx(0.0344, abs=0.003)
    assert figures["vanishing_slopes"] == 0 == figures["wrong_slopes"]
    assert figures["median_slope"] == pytest.approx(-0.47, abs=0.02)


def test_slopes_are_those_of_the_own_score():
    """Each rank falls by twice the own score, and rises by any other."""
    slopes = sorting.own_slopes(lambda s: tf.reduce_sum(s, 1, keepdims=True) - 3 * s, 20, 10)
    np.testing.assert_allclose(slopes, np.full(20, -0.2), atol=1e-6)
    expected = {"vanishing_slopes": 0.5, "wrong_slopes": 0.25, "median_slope": -0.02}
    assert sorting.slope_shares(np.array([-0.5, -0.04, 0.0, 0.1])) == expected


def test_moved_items_of_a_straight_list(rng):
    """Where ranks fall evenly with the scores, the wanted number is 1."""
    scores = np.stack([np.arange(20) * 0.1, rng.permutation(20) * 3.0]).astype(np.float32)
    after, multipliers = script.moved(rng, scores)
    steps = np.array([[0.1], [3.0]])
    found = (-(after - scores) / steps * multipliers)[multipliers != 0]
    assert found.size
    np.testing.assert_allclose(found, 1, atol=1e-4)
    assert (multipliers[after == scores] == 0).all()
    equal = np.ones((2, 20), np.float32)
    after, multipliers = script.moved(rng, equal)
    assert (after == 1).all() and (multipliers == 0).all()


@pytest.mark.parametrize("fixed", [False, True])
def test_batches(fixed):
    lengths = set()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        batch = script.training_batch(rng, 600, 100 if fixed else 300, fixed)
        length = batch["length"]
        count, padded = batch["scores"].shape
        lengths.add(length)
        assert padded in ([100] if fixed else [32, 100, 300])
        assert batch["padding"] == (padded > length)
        assert batch["multipliers"].shape == (count / 2, padded)
        assert not batch["scores"][:, length:].any()
        np.testing.assert_array_equal(
            batch["ranks"][:, :length], sorting.exact_ranks(batch["scores"][:, :length])
        )
    assert 100 in lengths and len(lengths) > 15 and min(lengths) < 20


@pytest.mark.slow
def test_training_writes_what_pretrained_reads(tmp_path, capsys):
    settings = "--sorter convolutional --units 4 --frequencies 2 --items 800 --test-lists 20"
    arguments = [*settings.split(), "--output", str(tmp_path)]
    script.main([*arguments, "--minutes", "0.02"])
    card = json.loads((tmp_path / "convolutional_sorter.json").read_text())
    assert 0 < card["figures"]["l1_100"] < 0.25  # That of a constant.
    assert f"step {card['steps']}: training" in capsys.readouterr().out
    sorter = layers.ConvolutionalSorter.pretrained(tmp_path / "convolutional_sorter.npz")
    assert (sorter.units, sorter.frequencies) == (4, 2)
    found = sorting.measure(sorter, count=20)
    assert {name: round(x, 6) for name, x in found.items()} == card["figures"]
    script.main([*arguments, "--minutes", "0.03", "--resume"])
    longer = json.loads((tmp_path / "convolutional_sorter.json").read_text())
    assert longer["steps"] > card["steps"] and longer["minutes"] >= card["minutes"]
    with pytest.raises(ValueError, match="is of a run with other settings"):
        script.main([*arguments, "--minutes", "0.03", "--resume", "--seed", "1"])


def test_goes_on_from_the_newest_checkpoint_that_can_be_read(tmp_path, capsys):
    sorter = layers.ConvolutionalSorter(length=10, frequencies=2, units=4, trainable=True)
    trainer = script.Trainer(sorter, slope_weight=0.02)
    trainer.restore(tmp_path, {})  # There is none.
    for step in (1, 2, 3):
        trainer.steps.assign(step)
        trainer.save(tmp_path, {})
    newest, before = (tmp_path / name for name in script.CHECKPOINTS)

    def steps_restored():
        trainer.steps.assign(0)
        trainer.restore(tmp_path, {})
        return int(trainer.steps.numpy())

    assert steps_restored() == 3
    newest.write_bytes(newest.read_bytes()[:-100])
    assert steps_restored() == 2
    assert str(newest) in capsys.readouterr().out
    before.write_bytes(b"")
    with pytest.raises(ValueError, match=rf"{newest} must be .*{before} must be a checkpoint"):
        trainer.restore(tmp_path, {})


@pytest.mark.parametrize(
    "flags",
    ["--steps -5", "--steps 0", "--minutes nan", "--minutes 0", "--items 0", "--test-lists -1"]
    + ["--units 0", "--frequencies 0", "--slope-weight -1", "--learning-rate inf", "--seed -1"],
)
def test_bad_arguments(flags, tmp_path, capsys):
    with pytest.raises(SystemExit):
        script.main(["--sorter", "set", "--output", str(tmp_path / "new"), *flags.split()])
    assert f"argument {flags.split()[0]}: must be a" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_slopes_are_part_of_the_loss():
    """A step on the penalty alone makes slopes that lack steeper."""
    sorter = layers.ConvolutionalSorter(length=10, frequencies=2, units=4, trainable=True)
    trainer = script.Trainer(sorter, slope_weight=1e3)
    batch = script.training_batch(np.random.default_rng(0), 400, 10, True) | {"wanted_slope": 1.0}
    penalties = [trainer.train(batch, 0.01)[1] for _ in range(20)]
    assert penalties[-1] < 0.8 * penalties[0]
