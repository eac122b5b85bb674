"""Compares a fractal expansion with the original ratings and with an expansion in shuffled blocks.

    python -m scripts.reproductions.fractal --ratings ml-latest-small.zip
    python -m scripts.reproductions.fractal --ratings ml-20m.zip --num-pairs 979e6 --no-shuffled

Belletti et al. 2019 show that an expansion keeps the long tails of users and items and the decay of
the singular values. The first row has the ratings, the second `fractal_expansion`. In the
third, the users and items of each block have their own order, as in the authors' program. `Gini`
measures how unequally pairs are spread over the users and items that have any: 0 means evenly.
"""

import argparse
import csv
import dataclasses
import io
import time
import zipfile
from collections.abc import Iterator

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
import tensorflow as tf

from rank4class_tf import data
from scripts import command_line, tables

# The table shows these singular values, divided by the first.
PLACES = (2, 3, 5, 10)

# A pair stays in a block with a probability in this range, as in the authors' program.
_LOWEST, _HIGHEST = 0.01, 0.95


@dataclasses.dataclass(frozen=True)
class FractalExpansion:
    """The users and items of `fractal_expansion`; only the original ratings are in memory.

    Attributes:
        ratings: ragged int32 `[base users, None]`, the items of each user in the original ratings.
        num_base_items: the number of items in the original ratings.
        probabilities: `[rows, columns]`, the probability of a rating to stay in each block.
        seed: seed that decides which pairs stay.
    """

    ratings: tf.RaggedTensor
    num_base_items: int
    probabilities: np.ndarray
    seed: int

    @property
    def num_users(self) -> int:
        """The number of users, some of whom may have no items."""
        return len(self.probabilities) * int(self.ratings.nrows())

    @property
    def num_items(self) -> int:
        """The number of items; some may belong to no user."""
        return self.probabilities.shape[1] * self.num_base_items

    @property
    def expected_pairs(self) -> float:
        """The expected number of pairs of a user and an item."""
        return float(len(self.ratings.flat_values) * self.probabilities.sum())

    def users(self, first: int, last: int) -> tf.RaggedTensor:
        """Returns the items of some users; they do not depend on the range that is asked for.

        Ragged int32 `[last - first, None]`, the sorted item numbers of each user in [first, last).
        """
        starts = self.ratings.row_splits.numpy()
        row, base = np.divmod(np.arange(first, last), len(starts) - 1)
        counts = starts[base + 1] - starts[base]
        owner = np.repeat(np.arange(last - first), counts)
        place = np.arange(len(owner)) + np.repeat(starts[base] - np.cumsum(counts) + counts, counts)
        rows, columns = self.probabilities.shape
        keys = _mixed(np.arange(rows * columns, dtype=np.uint64) + np.uint64(self.seed << 32))
        keys = keys.reshape(rows, columns)[row]
        owners, items = [], []
        for column in range(columns):
            # The place among all ratings and the block tell whether a pair stays.
            draws = _mixed(place.astype(np.uint64) * _STEP + keys[:, column][owner])
            uniform = (draws >> np.uint64(11)) * 2.0**-53
            stays = uniform < self.probabilities[row, column][owner]
            owners.append(owner[stays])
            found = self.ratings.flat_values.numpy()[place[stays]]
            items.append(found + column * self.num_base_items)
        of_users = np.concatenate(owners)
        by_user = np.argsort(of_users, kind="stable")
        lengths = np.bincount(of_users, minlength=last - first)
        return tf.RaggedTensor.from_row_lengths(
            np.concatenate(items)[by_user].astype(np.int32), lengths
        )

    def batches(self, users_per_batch: int = 1024) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields all pairs as `(user_ids, item_ids)`, as `UserItems.from_pairs` takes them."""
        for first in range(0, self.num_users, users_per_batch):
            lists = self.users(first, min(first + users_per_batch, self.num_users))
            yield first + lists.value_rowids().numpy(), lists.flat_values.numpy()


def fractal_expansion(
    ratings: data.UserItems,
    rows: int = 16,
    columns: int = 32,
    num_pairs: float | None = None,
    seed: int = 0,
) -> FractalExpansion:
    r"""Expands ratings to `rows` times the users and `columns` times the items.

    $$\begin{pmatrix} L_{11} * R & \dots & L_{1b} * R \\ \vdots & & \vdots \\
    L_{a1} * R & \dots & L_{ab} * R \end{pmatrix}$$

    R is the matrix of who rated what. In $p * R$, each entry of R stays with probability p. L, with
    a rows and b columns, is a small version of R. It has R's leading singular values. Its singular
    vectors are means over neighbouring users and items, made orthonormal again. We take the
    absolute values of its entries, divide them by the highest, and clip them to [0.01, 0.95]. So
    the expectation is the Kronecker product of L and R, which keeps the long tails of users and
    items and the decay of the singular values.

    The authors also shuffle the users and items of each block separately. The popular items of one
    block are then rare items of the next, sums over blocks even out, and the tails are lost. Here,
    all blocks of a row have their users in the same order, and all blocks of a column have their
    items in the same order.

    Source: Belletti et al. 2019, "Scalable Realistic Recommendation Datasets through Fractal
    Expansions", equations 2 and 3 and algorithm 2. With MovieLens 20M it makes what the Rankmax
    paper calls "Movielens 1B".

    Args:
        ratings: the users and their items; all three parts are used.
        rows: a; the smaller of a and b must be below the numbers of users and of items.
        columns: b.
        num_pairs: the expected number of pairs, reached by raising L to a power. None keeps L.
        seed: seed of the pairs that stay, in [0, 2**32).

    Returns:
        `FractalExpansion`. User `i * num_users + u` is user u in row i, item `j * num_items + v` is
        item v in column j.
    """
    lists = tf.concat([ratings.train, ratings.validation, ratings.test], axis=1)
    # In an order that does not depend on the split.
    by_user = np.lexsort([lists.flat_values.numpy(), lists.value_rowids().numpy()])
    lists = lists.with_flat_values(lists.flat_values.numpy()[by_user])
    in_small = _in_small(lists, ratings.num_items, rows, columns)
    if num_pairs is not None:
        in_small = _with_mean(in_small, num_pairs, len(lists.flat_values))
    probabilities = np.clip(in_small, _LOWEST, _HIGHEST)
    return FractalExpansion(lists, ratings.num_items, probabilities, seed)


_STEP = np.uint64(0x9E3779B97F4A7C15)


def _mixed(x):
    """The output function of the generator SplitMix64: well mixed bits of uint64 numbers."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _in_small(lists, num_items, rows, columns):
    """The matrix L `[rows, columns]`, in [0, 1]."""
    matrix = as_matrix(lists, num_items, np.float64)
    # A given first vector makes the result the same in each run.
    start = np.ones(min(matrix.shape))
    left, values, right = scipy.sparse.linalg.svds(matrix, k=min(rows, columns), v0=start)

    def means(vectors, number):
        shrunk = np.stack([part.mean(axis=0) for part in np.array_split(vectors, number)])
        inner, _, outer = np.linalg.svd(shrunk, full_matrices=False)
        return inner @ outer  # The nearest matrix with orthonormal columns.

    reduced = np.abs(means(left, rows) * values @ means(right.T, columns).T)
    return reduced / reduced.max()


def _with_mean(in_small, num_pairs, num_ratings):
    """The power of the matrix L for which the expected number of pairs is `num_pairs`."""

    def expected(power):
        return np.clip(in_small**power, _LOWEST, _HIGHEST).sum() * num_ratings

    least, most = 1e-4, 1e4
    if not expected(most) <= num_pairs <= expected(least):
        raise ValueError(
            f"`num_pairs` must be between {expected(most):.0f} and {expected(least):.0f}, about 1 "
            f"and 95 % of all pairs. Received: num_pairs={num_pairs:g}."
        )
    for _ in range(60):
        power = (least * most) ** 0.5
        least, most = (power, most) if expected(power) > num_pairs else (least, power)
    return in_small**power


def read_ratings(path):
    """`UserItems` of the ratings in an archive of MovieLens."""
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.endswith("ratings.csv"))
        with archive.open(name) as file:
            rows = csv.reader(io.TextIOWrapper(file, "utf-8"))
            next(rows)
            pairs = np.array([(int(row[0]), int(row[1])) for row in rows])
    return data.UserItems.from_pairs([pairs.T])


def as_matrix(lists, num_items, dtype=np.float32):
    """Users as the rows of a sparse matrix."""
    items, starts = lists.flat_values.numpy(), lists.row_splits.numpy()
    shape = len(starts) - 1, num_items
    return scipy.sparse.csr_matrix((np.ones(len(items), dtype), items, starts), shape)


def shuffled(expansion):
    """The expansion, with the users and the items of each block in a separate random order."""
    rng = np.random.default_rng(expansion.seed)
    whole = as_matrix(expansion.users(0, expansion.num_users), expansion.num_items)
    users, items = int(expansion.ratings.nrows()), expansion.num_base_items
    rows = []
    for i in range(0, expansion.num_users, users):
        blocks = []
        for j in range(0, expansion.num_items, items):
            block = whole[i : i + users, j : j + items]
            blocks.append(block[rng.permutation(users)][:, rng.permutation(items)])
        rows.append(scipy.sparse.hstack(blocks, format="csr"))
    return scipy.sparse.vstack(rows, format="csr")


def gini(counts):
    """The Gini coefficient of the counts that are not 0."""
    counts = np.sort(counts[counts > 0])
    ranks = np.arange(1, len(counts) + 1)
    return 2 * (ranks @ counts) / (len(counts) * counts.sum()) - (len(counts) + 1) / len(counts)


def statistics(matrix):
    """Users, items and pairs of a matrix, how they are spread, and singular values."""
    by_user = np.asarray(matrix.sum(axis=1), np.float64).ravel()
    by_item = np.asarray(matrix.sum(axis=0), np.float64).ravel()
    users, items = np.count_nonzero(by_user), np.count_nonzero(by_item)
    start = np.ones(min(matrix.shape), matrix.dtype)
    number = min(max(PLACES), *(size - 1 for size in matrix.shape))
    values = scipy.sparse.linalg.svds(matrix, k=number, return_singular_vectors=False, v0=start)
    values = np.sort(values)[::-1]
    return {
        "users": f"{users:,}",
        "items": f"{items:,}",
        "pairs": f"{matrix.nnz:,}",
        "% of all pairs": f"{100 * matrix.nnz / users / items:.3f}",
        "pairs a user": f"{matrix.nnz / users:.0f}",
        "Gini, users": f"{gini(by_user):.3f}",
        "Gini, items": f"{gini(by_item):.3f}",
        "singular values " + ", ".join(map(str, PLACES)): ", ".join(
            f"{values[place - 1] / values[0]:.2f}" for place in PLACES if place <= number
        ),
    }


def main(argv=None):
    """Prints the table."""
    parser = command_line.parser(__spec__, description=__doc__)
    parser.add_argument("--ratings", required=True, help="archive of MovieLens")
    parser.add_argument(
        "--rows", type=command_line.positive(int), default=16, help="factor for the number of users"
    )
    parser.add_argument(
        "--columns",
        type=command_line.positive(int),
        default=32,
        help="factor for the number of films",
    )
    parser.add_argument(
        "--num-pairs", type=command_line.positive(float), help="expected number of pairs"
    )
    parser.add_argument("--seed", type=command_line.seed, default=0)
    parser.add_argument(
        "--shuffled",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether to compute the third row",
    )
    args = parser.parse_args(argv)
    ratings = read_ratings(args.ratings)
    expansion = fractal_expansion(ratings, args.rows, args.columns, args.num_pairs, args.seed)
    start = time.process_time()
    pairs = sum(len(items) for _, items in expansion.batches())
    seconds = (time.process_time() - start) / pairs * 1e6
    whole = as_matrix(expansion.users(0, expansion.num_users), expansion.num_items)
    found = {
        "ratings": statistics(as_matrix(expansion.ratings, ratings.num_items)),
        "expansion": statistics(whole),
    }
    if args.shuffled:
        found["blocks shuffled"] = statistics(shuffled(expansion))
    head = ["", *found["ratings"]]
    rows = [[name, *values.values()] for name, values in found.items()]
    print("\n".join(tables.table(head, rows, len(head) - 1)))
    print(f"\nExpected pairs: {expansion.expected_pairs:,.0f}. Generated at {seconds:.2f} s of one")
    print("processor a million pairs.")
    return found


if __name__ == "__main__":
    main()
