"""The pages: their examples run, their links lead somewhere, and no public name is left out."""

import json
import re

import pytest

from docs import docstrings, public
from tests import pages


# Keras 3.15 warns at every `fit` on a dataset that is not told `shuffle=False`.
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed:UserWarning")
@pytest.mark.parametrize("page", pages.RUN)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert pages.run(page)


@pytest.mark.slow
def test_the_readme_compares_losses_on_a_csv(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"{'red green' if i % 2 else 'blue gray'} {i % 5},{i % 2}" for i in range(60)]
    (tmp_path / "mine.csv").write_text("\n".join(["text,category", *rows]))
    (code,) = re.findall(r"^```py\n(.*?)^```$", (pages.ROOT / "README.md").read_text(), re.M | re.S)
    exec(code, {"__name__": "page"})
    assert "is better in ndcg_at_5" in capsys.readouterr().out.splitlines()[-1]


def test_every_public_name_has_a_docstring():
    assert public.undocumented() == []


@pytest.mark.parametrize(
    "text, rst",
    [
        ("$x$ and `n`", ":math:`x` and ``n``"),
        ("`hinge`", "``hinge``"),
        ("`ops.get_phi(p)`", ":py:obj:`ops.get_phi(p) <rank4class_tf.ops.get_phi>`"),
        ("see `RankmaxLoss`", "see :py:obj:`RankmaxLoss <rank4class_tf.losses.RankmaxLoss>`"),
        ("$$a\n  = b$$", ".. math:: a = b\n"),
        ("the `k`s", r"the ``k``\ s"),
        ("Text `a`.\n\n>>> f('`a` $b$')\n", "Text ``a``.\n\n>>> f('`a` $b$')\n"),
        (
            "| a | b |\n|---|---|\n| `c` | d |\n",
            ".. list-table::\n   :header-rows: 1\n\n   * - a\n     - b\n   * - ``c``\n     - d\n",
        ),
    ],
)
def test_docstrings_become_rst(text, rst):
    assert docstrings.to_rst(text) == rst


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "tests/README.md"])
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (pages.ROOT / page).read_text())
    assert not [link for link in links if not ((pages.ROOT / page).parent / link).exists()]


@pytest.mark.slow
def test_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = pages.ROOT / "examples" / "getting_started.ipynb"
    cells = json.loads(path.read_text())["cells"]
    namespace = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}[{number}]", "exec"), namespace)
    assert path.stat().st_size < 100_000
