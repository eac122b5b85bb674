"""A small archive of MovieLens's form: users who like one genre each."""

import csv
import io
import zipfile

import numpy as np

GENRES = ("Comedy", "Horror", "Western")
WORDS = {"Comedy": "wedding", "Horror": "night", "Western": "river"}


def write(path, num_films=60, num_users=24, per_user=9):
    """Writes it; the last film of each genre has no ratings."""
    rng = np.random.default_rng(0)
    genres = [GENRES[i % 3] for i in range(num_films)]
    titles = [
        f"The {WORDS[genre]} {i} ({1950 + i % 60})" for i, genre in enumerate(genres)
    ]
    movies = [[10 * i + 3, titles[i], genre] for i, genre in enumerate(genres)]
    ratings = []
    for user in range(num_users):
        liked = [i for i in range(num_films - 3) if i % 3 == user % 3]
        for time, film in enumerate(rng.choice(liked, per_user, replace=False)):
            ratings.append([user + 1, movies[film][0], 4.0, 1000 + time])
    rng.shuffle(ratings)
    with zipfile.ZipFile(path, "w") as archive:
        for name, head, rows in (
            ("movies.csv", ["movieId", "title", "genres"], movies),
            ("ratings.csv", ["userId", "movieId", "rating", "timestamp"], ratings),
        ):
            text = io.StringIO()
            csv.writer(text).writerows([head, *rows])
            archive.writestr(f"ml-tiny/{name}", text.getvalue())
    return path
