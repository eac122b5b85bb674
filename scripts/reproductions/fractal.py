"""Compares a fractal expansion with the original ratings and with an expansion in shuffled blocks.

    python -m scripts.reproductions.fractal --ratings ml-latest-small.zip
    python -m scripts.reproductions.fractal --ratings ml-20m.zip --num-pairs 979e6 --no-shuffled

Belletti et al. 2019 show that an expansion keeps the long tails of users and items and the decay of
the singular values. The first row has the ratings, the second `data.fractal_expansion`. In the
third, the users and items of each block have their own order, as in the authors' program. `Gini`
measures how unequally pairs are spread over the users and items that have any: 0 means evenly.
"""

import argparse
import csv
import io
import time
import zipfile

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from rank4class_tf import data
from scripts import command_line, tables

# The table shows these singular values, divided by the first.
PLACES = (2, 3, 5, 10)


def read_ratings(path):
    """`UserItems` of the ratings in an archive of MovieLens."""
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.endswith("ratings.csv"))
        with archive.open(name) as file:
            rows = csv.reader(io.TextIOWrapper(file, "utf-8"))
            next(rows)
            pairs = np.array([(int(row[0]), int(row[1])) for row in rows])
    return data.UserItems.from_pairs([pairs.T])


def as_matrix(lists, num_items):
    """Users as the rows of a sparse matrix."""
    items, starts = lists.flat_values.numpy(), lists.row_splits.numpy()
    shape = len(starts) - 1, num_items
    return scipy.sparse.csr_matrix((np.ones(len(items), np.float32), items, starts), shape)


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
    expansion = data.fractal_expansion(ratings, args.rows, args.columns, args.num_pairs, args.seed)
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
