"""Draws the Euclidean projection on the (3, 2)-simplex, as Figure 1 of the Rankmax paper.

python -m scripts.reproductions.draw_simplex --out docs/images/simplex.png
"""

import itertools
import pathlib

import numpy as np
from matplotlib.figure import Figure
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

from rank4class_tf import ops
from scripts import command_line
from scripts.reproductions import harness

CORNERS = np.array([(1, 1, 0), (1, 0, 1), (0, 1, 1)])
# One lands inside, one on an edge and one in a corner.
VECTORS = np.array([(1.15, 1.0, 0.55), (1.45, 0.25, 0.95), (0.1, 1.75, 1.25)])


def draw(path):
    """Draws the cube, the simplex and three projections."""
    projections = ops.euclidean_projection(VECTORS, k=2).numpy()
    figure = Figure(figsize=(5, 4.6), layout="constrained")
    axis = figure.add_subplot(projection="3d", computed_zorder=False)
    for start in itertools.product((0, 1), repeat=3):
        for end in itertools.product((0, 1), repeat=3):
            if start < end and np.abs(np.subtract(start, end)).sum() == 1:
                axis.plot(*zip(start, end, strict=True), color="0.7", linewidth=0.8)
    axis.add_collection3d(Poly3DCollection([CORNERS], color="tab:red", alpha=0.35))
    for z, x, color in zip(VECTORS, projections, ("tab:blue", "tab:green", "black"), strict=True):
        # An entry strictly between 0 and 1 was only moved along (1, 1, 1). An entry that was cut
        # follows from the others.
        free = np.flatnonzero((x > 1e-9) & (x < 1 - 1e-9))
        shift = (z - x)[free].mean() if len(free) else np.sort(z)[0]
        moved = z - shift
        axis.plot(*zip(z, moved, strict=True), color=color, linestyle="--", linewidth=1)
        axis.plot(*zip(moved, x, strict=True), color=color, linestyle=":", linewidth=1.6)
        axis.scatter(*z, color=color, s=22)
        axis.scatter(*x, color=color, s=40, marker="*")
        axis.text(*(z + 0.06), "z", color=color)
    axis.set(xlim=(0, 1.5), ylim=(0, 1.5), zlim=(0, 1.5))
    axis.set(xlabel="$x_1$", ylabel="$x_2$", zlabel="$x_3$")
    axis.set_xticks([0, 1])
    axis.set_yticks([0, 1])
    axis.set_zticks([0, 1])
    axis.view_init(elev=18, azim=25)
    axis.set_box_aspect((1, 1, 1), zoom=0.9)
    harness.save_figure(figure, path)


def main():
    """The command line."""
    parser = command_line.parser(__spec__, description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/simplex.png"))
    draw(parser.parse_args().out)


if __name__ == "__main__":
    main()
