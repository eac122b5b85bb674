r"""Finds each query's best classes by approximate search; compares with exact search.

    python examples/extreme_classification.py --train train.txt --test test.txt \
        --export index
    python examples/approximate_search.py --folder index

The first program writes the class embeddings, `classes.npy`, and the encodings of its
test points, `queries.npy`. `TwoTower.export_candidates` and `predict` give the same
files. This program builds an index with FAISS (pip install faiss-cpu) and compares its
results with the exact best classes, once for each of `--probes`. It writes
`index.faiss` for a server, and the results of the last comparison to `best.npy`. It
does not need TensorFlow. Without FAISS the search is exact.

On WordNet it prints (times are those of one busy core):

    20,456 classes, 9,468 queries
    exact: 1.717 ms per query
    FAISS, 4 clusters: 0.416 ms per query, 56.4% of the exact best 5
    FAISS, 16 clusters: 1.894 ms per query, 76.7% of the exact best 5
    FAISS, 64 clusters: 6.853 ms per query, 94.4% of the exact best 5
"""

import argparse
import math
import pathlib
import time

import numpy as np

BLOCK = 65_536  # classes scored at once
QUERIES = 256  # queries scored at once


def exact(classes, queries, k):
    """The k classes `[n, k]` with the highest inner products per query, best first."""
    starts = range(0, max(len(queries), 1), QUERIES)
    return np.concatenate(
        [exact_of(classes, queries[i : i + QUERIES], k) for i in starts]
    )


def exact_of(classes, queries, k):
    """The same for a block of queries."""
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


def build_index(faiss, classes):
    """FAISS's index: clusters of classes; a search reads those nearest to the query."""
    clusters = math.isqrt(len(classes))
    quantizer = faiss.IndexFlatIP(classes.shape[1])
    index = faiss.IndexIVFFlat(
        quantizer, classes.shape[1], clusters, faiss.METRIC_INNER_PRODUCT
    )
    some = np.random.default_rng(0).permutation(len(classes))[: 64 * clusters]
    index.train(np.ascontiguousarray(classes[np.sort(some)]))
    for start in range(0, len(classes), BLOCK):
        index.add(np.ascontiguousarray(classes[start : start + BLOCK]))
    return index


def import_faiss():
    """Imports FAISS; returns None, and prints the reason, if it is missing."""
    try:
        import faiss
    except ImportError as error:
        print(
            f"FAISS is missing (pip install faiss-cpu), so the search is exact: {error}"
        )
        return None
    return faiss


def parse_args(argv=None):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--folder", type=pathlib.Path, required=True, help="folder of the files"
    )
    parser.add_argument(
        "--k",
        type=int,
        default=5,
        help="how many classes to find (default: %(default)s)",
    )
    parser.add_argument(
        "--probes",
        type=int,
        nargs="+",
        default=[4, 16, 64],
        help=(
            "numbers of clusters to read; more are slower and more exact (default: "
            "%(default)s)"
        ),
    )
    args = parser.parse_args(argv)
    if min(args.probes) < 1:
        parser.error(f"--probes must be at least 1, not {min(args.probes)}")
    return args


def main(argv=None):
    """Searches and returns the share of the exact best for each number of probes."""
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
    found, shares, faiss = best, {}, import_faiss()
    if faiss:
        index = build_index(faiss, classes)
        for index.nprobe in args.probes:
            (_, found), milliseconds = timed(lambda: index.search(queries, args.k))
            same = [
                len(set(a) & set(b)) / args.k for a, b in zip(found, best, strict=True)
            ]
            shares[index.nprobe] = np.mean(same)
            print(
                f"FAISS, {index.nprobe} clusters: {milliseconds:.3f} ms per query, "
                f"{np.mean(same):.1%} of the exact best {args.k}"
            )
        faiss.write_index(index, str(args.folder / "index.faiss"))
    np.save(args.folder / "best.npy", found)
    return shares


if __name__ == "__main__":
    main()
