"""Writes the `ExampleListWithContext` files that the two programs read."""

import numpy as np

from rank4class_tf.data import elwc

rng = np.random.default_rng(0)


def make_list():
    words = rng.choice(["cat", "dog", "fish"], size=(4, 3))
    numbers = rng.normal(size=(4, 5))
    return {"query_tokens": list(words[0])}, [
        {"utility": float(x[0] > 0), "document_tokens": list(w[: 1 + i % 3])}
        | {f"custom_features_{j + 1}": x[j] for j in range(5)}
        for i, (x, w) in enumerate(zip(numbers, words, strict=True))
    ]


elwc.write((make_list() for _ in range(64)), "train")
elwc.write((make_list() for _ in range(32)), "valid")
