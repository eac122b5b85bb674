import numpy as np
import pytest
from sklearn.datasets import load_digits

from rank4class_tf import data


def read(dataset):
    features, class_ids = zip(*dataset.as_numpy_iterator(), strict=True)
    return np.concatenate(features), np.concatenate(class_ids)


def as_rows(features, class_ids):
    """A sorted list of examples, to compare as multisets."""
    return sorted(map(tuple, np.column_stack([features, class_ids]).tolist()))


@pytest.fixture(scope="module")
def splits():
    return data.digits(batch_size=50)


def test_form(splits):
    features, class_ids = splits.train.element_spec
    assert (features.shape.as_list(), features.dtype) == ([None, 64], "float32")
    assert (class_ids.shape.as_list(), class_ids.dtype) == ([None], "int64")
    assert splits.class_names == tuple("0123456789")
    assert splits.num_classes == 10
    assert [len(ids) for _, ids in splits.validation] == [50] * 7 + [10]


def test_parts_are_all_images_each_once_and_stratified(splits):
    parts = [read(part) for part in (splits.train, splits.validation, splits.test)]
    assert [len(ids) for _, ids in parts] == [1077, 360, 360]
    images, labels = load_digits(return_X_y=True)
    together = as_rows(*map(np.concatenate, zip(*parts, strict=True)))
    assert together == as_rows((images / 16).astype("float32"), labels)
    for (_, class_ids), share in zip(parts, (0.6, 0.2, 0.2), strict=True):
        # A count is rounded once for the test part and once more for the validation part.
        assert np.abs(np.bincount(class_ids) - share * np.bincount(labels)).max() < 2
    for part in (splits.validation, splits.test):  # Their order stays.
        np.testing.assert_equal(read(part), read(part))


def test_training_order_is_new_each_epoch_and_follows_from_the_seed():
    first, again, other = (data.digits(seed=seed) for seed in (3, 3, 4))
    epochs, same_epochs = ([read(part.train) for _ in range(2)] for part in (first, again))
    np.testing.assert_equal(epochs, same_epochs)
    assert as_rows(*epochs[0]) == as_rows(*epochs[1])
    assert (epochs[0][0] != epochs[1][0]).any()
    np.testing.assert_equal(read(first.test), read(again.test))
    np.testing.assert_equal(read(first.test), read(other.test))
    assert as_rows(*read(first.validation)) != as_rows(*read(other.validation))


def test_few_examples_of_each_class_are_some_of_all():
    few, every = data.digits(seed=3, examples_per_class=5), data.digits(seed=3)
    features, class_ids = read(few.train)
    assert np.bincount(class_ids).tolist() == [5] * 10
    assert set(as_rows(features, class_ids)) <= set(as_rows(*read(every.train)))
    np.testing.assert_equal(read(few.validation), read(every.validation))
    # 174 images of an eight are the fewest: 139 are not for testing, of these 104 for training.
    assert len(read(data.digits(examples_per_class=104).train)[1]) == 1040
