"""Finds the best classes of each query by approximate search, and tells how exact that is.

    python examples/extreme_classification.py --wordnet-dir /usr/share/wordnet --export index
    python examples/approximate_search.py --folder index

The first program writes the class embeddings, `classes.npy`, and the encodings of its test points,
`queries.npy`. This one builds ScaNN's index of the classes, asks it for the best of each query and
compares them with the exact best; it writes them to `best.npy`. It needs NumPy and ScaNN
(pip install scann) and no TensorFlow: ScaNN's wheels fit one version of it each. Without ScaNN the
search is exact.
"""

import argparse
import math
import pathlib
import time

import numpy as np

BLOCK = 65_536  # classes scored at once


def exact(classes, queries, k):
    """The k classes `[n, k]` with the highest inner products with each query, the best first."""
    scores = np.empty([len(queries), 0], np.float32)
    best = np.empty([len(queries), 0], np.int64)
    for start in range(0, len(classes), BLOCK):
        block = queries @ classes[start : start + BLOCK].T
        ids = np.broadcast_to(np.arange(start, start + block.shape[1]), block.shape)
        scores = np.concatenate([scores, block], axis=1)
        best = np.concatenate([best, ids], axis=1)
        if scores.shape[1] > k:
            highest = np.argpartition(-scores, k - 1, axis=1)[:, :k]
            scores = np.take_along_axis(scores, highest, axis=1)
            best = np.take_along_axis(best, highest, axis=1)
    return np.take_along_axis(best, np.argsort(-scores, axis=1), axis=1)


def index(scann, classes, k, leaves_searched):
    """ScaNN's search for k classes: a tree of clusters, then short codes, then exact scores."""
    leaves = math.isqrt(len(classes))
    builder = scann.scann_ops_pybind.builder(classes, k, "dot_product")
    builder = builder.tree(leaves, min(leaves, leaves_searched), training_sample_size=250_000)
    builder = builder.score_ah(2, anisotropic_quantization_threshold=0.2)
    return builder.reorder(10 * k).build().search_batched


def import_scann():
    """The module, or None, with the reason printed."""
    try:
        import scann
    except Exception as error:  # One built for another TensorFlow raises errors of that.
        reason = str(error).splitlines()[0]
        print(f"The search is exact, for want of ScaNN (pip install scann): {reason}")
        return None
    return scann


def parse_args(argv=None):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="of the three files")
    parser.add_argument(
        "--k", type=int, default=5, help="how many classes to find (default: %(default)s)"
    )
    parser.add_argument(
        "--leaves-searched",
        type=int,
        default=20,
        help="more are slower, better (default: %(default)s)",
    )
    args = parser.parse_args(argv)
    if args.leaves_searched < 1:
        parser.error(f"--leaves-searched must be at least 1, not {args.leaves_searched}")
    return args


def main(argv=None):
    """Searches and compares."""
    args = parse_args(argv)
    classes = np.load(args.folder / "classes.npy", mmap_mode="r")
    queries = np.load(args.folder / "queries.npy")
    if not 1 <= args.k <= len(classes):
        raise SystemExit(f"--k must be in [1, {len(classes)}], not {args.k}")
    print(f"{len(classes):,} classes, {len(queries):,} queries")

    def timed(search):
        start = time.perf_counter()
        found = search()
        return found, (time.perf_counter() - start) / len(queries) * 1e3

    best, milliseconds = timed(lambda: exact(classes, queries, args.k))
    print(f"exact: {milliseconds:.3f} ms per query")
    scann = import_scann()
    if scann:
        search = index(scann, classes, args.k, args.leaves_searched)
        (found, _), milliseconds = timed(lambda: search(queries))
        shares = [len(set(a) & set(b)) / args.k for a, b in zip(found, best, strict=True)]
        share = np.mean(shares)
        print(f"ScaNN: {milliseconds:.3f} ms per query, {share:.1%} of the exact best {args.k}")
        best = found
    np.save(args.folder / "best.npy", best)


if __name__ == "__main__":
    main()
