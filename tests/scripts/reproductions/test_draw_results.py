import pathlib

import pytest

from scripts.reproductions import draw_results

TEXT = """# First

| a | b | other |
|---|---:|---|
| `x` | **.5 ± .1** | 1 |
| | *1,000* | 1 |
| y | | 1 |

## Second

| a | b | c |
|---|---|---|
| z | +0.2 (+0.0 to +0.4) | 1 |
"""


def test_numbers_are_those_of_the_table():
    first = draw_results.Panel("First", ("b",)).rows(TEXT)
    assert list(first) == [("x", [(0.4, 0.5, 0.6)]), ("x", [(1000, 1000, 1000)])]
    second = draw_results.Panel("First", ("b", "c"), title="passes over a table without c")
    assert list(second.rows(TEXT)) == [("z", [(0, 0.2, 0.4), (1, 1, 1)])]
    with pytest.raises(ValueError, match="No table"):
        list(draw_results.Panel("Second", ("other",)).rows(TEXT))


@pytest.mark.parametrize("page", draw_results.PICTURES)
def test_every_picture_is_drawn_and_shown(page, tmp_path):
    draw_results.draw(page, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
    text = (pathlib.Path(draw_results.PAGES) / f"{page}.md").read_text()
    assert f"(../images/{page}_results.png)" in text
