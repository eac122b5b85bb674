"""The pages: examples run, links lead somewhere, and no public name is left out."""

import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
from numpy.testing import assert_allclose, assert_array_equal
from tensorflow import keras

from rank4class_tf import layers, losses, optimizers
from tests import pages
from tests.derivatives import gradient_of
from tests.refused import refused
from tests.small_models import linear, served

API = (pages.ROOT / "docs" / "api.md").read_text()


# Keras 3.15 warns at every `fit` on a dataset that is not told `shuffle=False`.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed:UserWarning")
@pytest.mark.parametrize("page", pages.RUN)
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert pages.run(page)


@pytest.mark.slow
def test_the_page_of_sequences_recommends_after_the_last_word(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    page = pages.run("docs/sequences.md")
    texts = page["texts"][:4]
    model = page["model"]
    last = np.sum(texts >= 0, axis=1) - 1
    assert last.min() < texts.shape[1] - 1
    everywhere = model.top_k(texts, 5)[1].numpy()
    assert_array_equal(page["next_words"], everywhere[range(4), last])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed:UserWarning")
@pytest.mark.filterwarnings("ignore:No temperature is the best:UserWarning")
def test_the_page_of_serving_answers(tmp_path, monkeypatch):
    """Histories of old, new, withdrawn and unknown items, and of none."""
    monkeypatch.chdir(tmp_path)
    page = pages.run("docs/serving.md")
    model = page["model"]
    number = {str(name): i for i, name in enumerate(page["log"].item_ids)}
    assert sorted(number) == ["figs", "kiwi", "milk", "rice", "tea"]
    histories = np.array(
        [
            [number["tea"], number["milk"]],
            [-1, number["kiwi"]],
            [number["milk"], number["figs"]],
            [number["milk"], 2**32 + number["rice"]],
            [77, -1],
        ]
    )
    answer = served("next/2", features=histories)
    names = np.char.decode(answer["class_names"].numpy().astype("S"))

    scores = model.scores(model(histories)).numpy()
    for history, row, best, last in zip(
        histories, scores, names, (1, 1, 1, 0, None), strict=True
    ):
        if last is None:
            assert [*best] == ["", ""]
            continue
        left = set(number.values()) - set(history) - {number["figs"]}
        ranked = [item for item in np.argsort(-row[last]) if item in left]
        assert [number[name] for name in best] == ranked[:2]

    # Doubt: scores after the last item, which padding follows.
    padded = np.array([[number["tea"], number["milk"], -1], [number["kiwi"], -1, -1]])
    _, best = model.top_k(padded, 1, last=True)
    assert_array_equal(tf.argmax(page["score"](padded), axis=1), best[:, 0])
    assert page["probabilities"].temperature > 0
    with refused("integers that fit into the int64 input"):
        spec = tf.TensorSpec([None, None], tf.float32)
        model.export_top_k("next/3", spec, last=True)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["adam", "rowwise_adam"])
def test_the_page_of_serving_grows_a_table(optimizer, tmp_path, monkeypatch, normal):
    """Beside a model that never grew: a class that is never likely changes nothing."""
    monkeypatch.chdir(tmp_path)
    add_classes = pages.run("docs/serving.md")["add_classes"]
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(4)
    x, y = normal(8, 3), np.arange(8) % 5
    start, start_biases = normal(5, 4), normal(5)
    kernel = normal(3, 4)

    def weights(grow):
        table = layers.ClassTable.from_rows(start, start_biases)
        end = layers.DotProductHead(table)
        model = keras.Model(inputs, end(hidden(inputs)))
        hidden.set_weights([kernel, np.zeros(4)])
        of_rows = optimizers.RowwiseAdam(0.1)
        chosen = of_rows if optimizer == "rowwise_adam" else keras.optimizers.Adam(0.1)
        model.compile(chosen, losses.SoftmaxLoss())
        for _ in range(2):
            model.train_on_batch(x, y)
        grow(model, table)
        model.train_on_batch(x, y)
        rows, biases = (np.array(w)[:5] for w in table.tables())
        return [rows, biases, *hidden.get_weights()]

    def forget(model, table):
        table.add(np.zeros([2, 4]), [-1e9] * 2)
        model.compile(type(model.optimizer)(0.1), model.loss)

    def add(model, table):
        add_classes(model, table, np.zeros([2, 4]))
        table.bias.assign(tf.concat([table.bias[:5], [-1e9] * 2], axis=0))

    expected = weights(lambda *_: None)
    for found, right in zip(weights(add), expected, strict=True):
        assert_allclose(found, right, atol=1e-5)
    assert np.abs(weights(forget)[0] - expected[0]).max() > 1e-2


def test_the_snippets_of_the_readme_train():
    one_line, large_output, _ = (
        code for _, code, _ in pages.python_blocks("README.md", "py")
    )
    rooms = ("layers", "losses", "metrics", "models", "optimizers")
    names = {name: importlib.import_module(f"rank4class_tf.{name}") for name in rooms}
    classifier = linear(3, 4)
    exec(one_line, {**names, "model": classifier})
    classifier.fit(np.ones([8, 3]), np.arange(8) % 4, verbose=0)
    words = np.arange(72).reshape(8, 9)
    exec(large_output, {**names, "keras": keras, "words": words})


@pytest.mark.slow
def test_the_readme_prints_what_it_shows():
    *_, (_, code, shown) = pages.python_blocks("README.md", "py")
    pages.run_block(code, shown, {"__name__": "page"}, "README.md")


def test_another_output_than_the_page_shows_is_seen():
    pages.run_block("print('a 1.0')\nprint('b')", "a 2.5\n...\nb\n", {}, "README.md")
    with pytest.raises(AssertionError, match="b 1"):
        pages.run_block("print('a 1')", "a 1\nb 1\n", {}, "README.md")


# What people type, and a page with the answer.
SEARCHES = {
    "GPU memory": "questions",
    "label noise": "results/noisy_labels",
    "next item": "sequences",
    "sparse categorical crossentropy ignore_class": "questions",
    "upgrade": "serving",
    "latency": "questions",
    "incremental": "questions",
    "binary": "questions",
    "two classes": "questions",
    "imbalance": "questions",
    "focal loss": "questions",
    "cold start": "questions",
    "NaN loss": "questions",
    "GPU": "questions",
    "early stopping": "recipes",
    "negative sampling": "large_output_spaces",
    "TPU": "distribution",
    "ONNX": "serving",
}


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """The pages that the built site finds for each of `SEARCHES`, the best first."""
    pytest.importorskip("sphinx")
    if shutil.which("node") is None:
        pytest.skip("Node.js is missing, which runs Sphinx's search.")
    site = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "--builder", "html", "--quiet"]
    subprocess.run([*build, "docs", site], cwd=pages.ROOT, check=True)
    search = ["node", pages.ROOT / "tests" / "search.js", site, *SEARCHES]
    done = subprocess.run(search, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("words", SEARCHES)
def test_a_search_finds_the_page_with_the_answer(words, searched):
    assert SEARCHES[words] in searched[words][:3]
    assert not {"architecture", "changelog"} & {*searched[words]}


@pytest.mark.slow
def test_a_recipe_compares_losses_on_a_csv(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [
        f"{'red green' if i % 2 else 'blue gray'} {i % 5},{i % 2}" for i in range(60)
    ]
    (tmp_path / "mine.csv").write_text("\n".join(["text,category", "?,0", *rows]))
    ((_, code, _),) = (
        x for x in pages.python_blocks("docs/recipes.md", "py") if "csv" in x[1]
    )
    exec(code.replace("minutes=20", "settings=1, epochs=1"), {"__name__": "page"})
    *lines, verdict = capsys.readouterr().out.splitlines()
    assert "No verdict: one setting" in verdict and "finite" not in "".join(lines)


@pytest.mark.parametrize(
    "module", re.findall(r"^   (rank4class_tf[\w.]*)$", API, re.MULTILINE)
)
def test_every_public_name_has_a_docstring_and_a_line_in_the_index(module):
    if module.endswith("_beam"):
        pytest.importorskip("apache_beam")
    room = importlib.import_module(module)
    listed = re.findall(r"`(?:\w+\.)?(\w+)`", API)
    for name in set(room.__all__) & set(dir(room)):
        value = getattr(room, name)
        assert inspect.ismodule(value) or name in listed, name
        assert vars(value)["__doc__"] if inspect.isclass(value) else value.__doc__, name
        bases = inspect.getmro(value) if inspect.isclass(value) else ()
        for place, base in enumerate(bases):
            for key, code in vars(base).items():
                if base.__module__.startswith("rank4class_tf") and not key.startswith(
                    "_"
                ):
                    is_new = not any(
                        hasattr(above, key) for above in bases[place + 1 :]
                    )
                    kinds = (types.FunctionType, classmethod, staticmethod, property)
                    assert not (is_new and isinstance(code, kinds)) or code.__doc__, (
                        base,
                        key,
                    )


def test_code_that_begins_with_a_public_name_becomes_a_link():
    pytest.importorskip("sphinx")
    from docs import links

    entry = types.SimpleNamespace(aliased=False)
    public = (
        "p.losses.Loss",
        "p.losses.Loss.fit",
        "p.losses.get",
        "p.metrics.get",
        "p.try_out",
    )
    short = {
        "losses.Loss",
        "Loss",
        "losses.Loss.fit",
        "Loss.fit",
        "losses.get",
        "metrics.get",
    }
    assert set(links.short_names(dict.fromkeys(public, entry))) == {
        *public,
        *short,
        "try_out",
    }


@pytest.mark.parametrize("folder", [".", "tests", "docs", "docs/results"])
def test_links_lead_somewhere_in_a_repository_browser(folder):
    for page in (pages.ROOT / folder).glob("*.md"):
        text = re.sub(r"(?s)```.*?\n```|`[^`]*`", "", page.read_text())
        for link, anchor in re.findall(r"\]\(([^)#:\s]*)#?([\w-]*)\)", text):
            target = page.parent / link if link else page
            assert target.exists(), (page.name, link)
            if anchor:
                titles = re.findall(
                    "^#+ (.*)", target.read_text().lower(), re.MULTILINE
                )
                anchors = [
                    re.sub(r"[^\w -]", "", title).replace(" ", "-") for title in titles
                ]
                assert anchor in anchors, (page.name, link, anchor)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/choosing.md"])
def test_figures_come_from_the_results_that_their_section_links_to(page):
    text = (pages.ROOT / page).read_text()
    # A section of `choosing.md`, a paragraph or a point of the others.
    end = r"^(?=### )" if page.endswith("choosing.md") else r"\n\n(?!-)|^(?=- )"
    for part in re.split(end, text, flags=re.MULTILINE):
        csvs = [
            f"docs/results/{name}.csv"
            for name in set(re.findall(r"results/(\w+)\.md", part))
        ]
        found = " ".join((pages.ROOT / path).read_text() for path in csvs)
        numbers = [float(number) for number in re.findall(r"\d*\.\d+", found)]
        for figure in re.findall(r"(?<![\w.])\.\d{2,3}\b", part):
            assert f"0{figure}" in {f"{x:.{len(figure) - 1}f}" for x in numbers}, (
                figure,
                part,
            )


@pytest.mark.slow
def test_the_notebook_prints_what_it_stores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = pages.ROOT / "examples" / "getting_started.ipynb"
    namespace = {"__name__": "__main__"}
    kinds = []
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            shown = "".join(
                line for out in cell["outputs"] for line in out.get("text", [])
            )
            pages.run_block(
                "".join(cell["source"]), shown, namespace, path.relative_to(pages.ROOT)
            )
            kinds += [out["output_type"] for out in cell["outputs"]] or ["none"]
    assert set(kinds) == {"stream", "display_data"} and path.stat().st_size < 100_000


@pytest.fixture(scope="module")
def own():
    with pytest.MonkeyPatch.context() as patch:
        # Registered anew in each run.
        patch.setattr(
            keras.utils, "register_keras_serializable", lambda _: lambda cls: cls
        )
        return pages.run("docs/extending.md")


@pytest.fixture
def batch(normal):
    return tf.constant(normal(6, 5)), tf.constant([0, 1, 2, 3, 4, 0])


def test_loss_is_its_formula(own, batch):
    make = own["SquaredViolationLoss"]
    (scores, class_ids) = (x.numpy() for x in batch)
    lists = zip(scores, class_ids, strict=True)
    expected = [
        np.sum(np.maximum(np.delete(row, y) - row[y] + 2, 0) ** 2) for row, y in lists
    ]
    found = make(margin=2.0, reduction="none")(class_ids, scores)
    assert_allclose(found, expected, rtol=1e-5)
    # Of many positives it is the sum.
    relevance = np.float32([[1] * 20 + [0] * 20])
    scores = np.linspace(-2, 2, 40, dtype="float32")[None]
    expected = sum(
        np.sum(np.maximum(scores[0, 20:] - scores[0, y] + 1, 0) ** 2) for y in range(20)
    )
    assert_allclose(make(reduction="none")(relevance, scores), [expected], rtol=1e-5)


def test_metric_loss_is_the_metric_of_ranks_that_are_nearly_exact(own):
    scores = tf.constant([[9.0, 7.0, 5.0, 3.0]])
    loss = own["ApproxPrecisionLoss"](
        2, ranker=layers.LaplaceSorter(0.01), label_format="ids"
    )
    # sigmoid(2.5 - 1) and sigmoid(2.5 - 3), over k.
    expected = -(1 / (1 + np.exp(-1.5)) + 1 / (1 + np.exp(0.5))) / 2
    assert np.isclose(loss([[0, 2]], scores), expected, atol=1e-3)


@pytest.mark.parametrize(
    "labels, scores, expected",
    [
        (
            [0, 1],
            [[1.0, 1.0, 0.0], [3.0, 2.0, 1.0]],
            ((1 + 0.5) / 2 + 0.5) / 2,
        ),  # Over orders.
        (
            [-1, 1],
            [[3.0, 2.0, 1.0]] * 2,
            0.5,
        ),  # A list without a positive does not count.
        ([[0, 2]], [[3.0, 2.0, 1.0]], (1 + 0.25) / (1 + 0.5)),
    ],
)
def test_metric(own, labels, scores, expected):
    assert np.isclose(own["GeometricRank"]()(labels, scores), expected)


@pytest.mark.parametrize("positives", [[0], [0, 3]])
def test_sums_over_differences_that_do_not_tend_to_zero(positives):
    class SumOfLogs(losses.RankingLoss):
        def compute(self, lists):
            sums = lists.sum_over_differences(lambda d: tf.math.log1p(d * d))
            return lists.sum_of_positives(sums)

    scores = np.array([5.0, -3.0, 700.0, 2.0])
    relevance = np.array([0.0, 0.0, -1.0, 0.0])
    relevance[positives] = 1
    expected = np.log1p((scores[[0, 1, 3]] - scores[positives][:, None]) ** 2).sum()
    for loss in (SumOfLogs(), SumOfLogs(max_positives=2)):
        assert np.isclose(loss([relevance], [scores]), expected, rtol=1e-6)


def test_sorter(own, batch):
    scores, _ = batch
    exact = 1 + np.argsort(np.argsort(-scores.numpy(), axis=1), axis=1)
    assert_allclose(own["CauchySorter"](1e-4)(scores), exact, atol=0.05)
    sorter = own["CauchySorter"](0.1)
    mask = tf.constant([[True, True, True, False, False]] * 6)
    assert np.all(gradient_of(lambda x: sorter(x)[:, 0], scores)[:, 0] < 0)
    assert_allclose(sorter(scores, mask=mask)[:, :3], sorter(scores[:, :3]), rtol=1e-5)
