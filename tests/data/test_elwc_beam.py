"""Bulk conversion by Apache Beam, on its DirectRunner."""

import numpy as np
import pytest
import tensorflow as tf

beam = pytest.importorskip("apache_beam")

from rank4class_tf.data import elwc, elwc_beam  # noqa: E402


def test_writes_what_elwc_reads(tmp_path, rng):
    features = rng.normal(size=(30, 3)).astype(np.float32)
    class_ids = rng.integers(0, 4, size=30)
    rows = list(elwc.lists([(features, class_ids)], num_classes=4))
    with beam.Pipeline(runner="DirectRunner") as pipeline:
        _ = pipeline | beam.Create(rows) | elwc_beam.WriteELWC(tmp_path / "f", num_shards=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"f-0000{shard}-of-00003" for shard in range(3)
    ]
    spec = {"features": tf.io.FixedLenFeature([3], tf.float32)}
    ((read, read_ids),) = elwc.read_classes(tmp_path / "f*", spec, batch_size=30)
    order, read_order = np.argsort(features[:, 0]), np.argsort(read["features"][:, 0])
    np.testing.assert_array_equal(read["features"].numpy()[read_order], features[order])
    np.testing.assert_array_equal(read_ids.numpy()[read_order, 0], class_ids[order])
