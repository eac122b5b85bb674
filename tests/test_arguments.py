"""Arguments that the pages name exist in the code, also where no test runs them."""

import ast
import collections
import doctest
import importlib
import inspect
import re
import textwrap

import pytest

from tests import pages

PAGES = [
    path.relative_to(pages.ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "docs/results/*.md")
    for path in sorted(pages.ROOT.glob(pattern))
]
OTHERS = {"tf", "keras", "np", "keras_hub"}  # Whose names may be names of ours.


def python_of(text):
    """Code of a page: blocks, indented or not, and what stands between backquotes."""
    fence = r"(?ms)^```(\w*).*?\n(.*?)^```$"
    blocks = [code for kind, code in re.findall(fence, text) if kind.startswith("py")]
    prose = re.sub(fence, "", text)
    blocks += map(textwrap.dedent, re.findall(r"(?m)(?:^    .*\n)+", prose))
    spans = re.findall(r"`([^`\n]+)`", prose)
    # `WARPLoss(num_trials=)` names an argument without a value.
    return blocks + [re.sub(r"=(?=[,)])", "=...", span) for span in spans]


def calls_in(code):
    """Name and keyword arguments of each call; none in what is not Python."""
    if ">>>" in code:
        examples = doctest.DocTestParser().get_examples(code)
        code = "".join(example.source for example in examples)
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            *path, name = ast.unparse(call.func).split(".")
            keywords = {keyword.arg for keyword in call.keywords} - {None}
            if keywords and OTHERS.isdisjoint(path):
                yield name, keywords


def accepted_by(*functions):
    """Names of arguments, of more functions while one hands on others; None if any."""
    names = set()
    for function in functions:
        parameters = inspect.signature(function).parameters
        names |= {*parameters}
        if inspect.Parameter.VAR_KEYWORD not in {x.kind for x in parameters.values()}:
            return names
    return None


@pytest.fixture(scope="module")
def accepted():
    """What each public function, class or method accepts; a name can be several."""
    found = collections.defaultdict(list)
    api = (pages.ROOT / "docs" / "api.md").read_text()
    for module in re.findall(r"(?m)^   (rank4class_tf[\w.]*)$", api):
        if module.endswith("_beam"):
            continue
        room = importlib.import_module(module)
        for name in set(room.__all__) & set(dir(room)):
            value = getattr(room, name)
            if inspect.isfunction(value):
                found[name].append(accepted_by(value))
            if inspect.isclass(value):
                bases = inspect.getmro(value)
                inits = [vars(x)["__init__"] for x in bases if "__init__" in vars(x)]
                found[name].append(accepted_by(*inits))
                for key, method in inspect.getmembers(value, inspect.isroutine):
                    if not key.startswith("_"):
                        found[key].append(accepted_by(method))
    return found


def unknown_arguments(text, accepted):
    return [
        (name, keywords)
        for code in python_of(text)
        for name, keywords in calls_in(code)
        if name in accepted
        and not any(names is None or keywords <= names for names in accepted[name])
    ]


@pytest.mark.parametrize("page", PAGES)
def test_arguments_on_a_page_are_those_of_the_code(page, accepted):
    assert not unknown_arguments((pages.ROOT / page).read_text(), accepted)


@pytest.mark.parametrize(
    "text",
    [
        "```py\nr4c.try_out(build, train, tried=losses)\n```\n",
        "```python\n>>> losses.RankmaxLoss(2.0, marge=1)\n3\n```\n",
        "Text.\n\n    model.top_k(x, number=5)\n\nText.\n",
        "Pass `WARPLoss(trials=)`.",
    ],
)
def test_a_wrong_argument_is_seen(text, accepted):
    assert unknown_arguments(text, accepted)


def test_arguments_of_bases_are_accepted(accepted):
    text = '`losses.RankmaxLoss(margin=1, reduction="none", name="a")`'
    assert not unknown_arguments(text, accepted)
    assert ("RankmaxLoss", {"margin", "reduction", "name"}) in calls_in(text.strip("`"))
