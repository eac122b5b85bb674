"""Sphinx's settings. `scripts/docs.sh` builds the pages."""

import importlib
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[1]))

import tensorflow as tf  # noqa: E402

import rank4class_tf as r4c  # noqa: E402
from docs import docstrings, links, mathml  # noqa: E402
from rank4class_tf.tfr import loading  # noqa: E402

project = "rank4class_tf"
author = "The rank4class_tf developers"
release = version = r4c.__version__
html_title = f"{project} {release}"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
extensions += ["sphinx_copybutton"]
copybutton_prompt_text, copybutton_prompt_is_regexp = r">>> |\.\.\. ", True
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "templates"]
templates_path = ["templates"]

# A page for each module that docs/api.md lists, by templates/autosummary/module.rst:
# the names in `__all__`, in its order. A class shows what its public bases do not show.
autosummary_ignore_module_all = False
autosummary_context = {
    "losses": r4c.losses.__all__,
    "bases": ", ".join(
        name
        for room in (
            r4c.layers,
            r4c.losses,
            r4c.metrics,
            r4c.models,
            r4c.ops,
            r4c.optimizers,
        )
        for name in room.__all__
    ),
}
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
autodoc_preserve_defaults = True
tf.data.Dataset.__qualname__ = "Dataset"  # Not DatasetV2, in signatures.
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # They name private modules of TensorFlow.
add_module_names = False
python_maximum_signature_line_length = 70
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

# TF-Ranking runs on Keras 2 alone: the bridge to it is read with a stand-in.
autodoc_mock_imports = ["apache_beam", "tensorflow_ranking"]
loading.load = lambda: importlib.import_module("tensorflow_ranking")
del r4c.tfr.__dir__

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_favicon = "static/favicon.svg"
html_math_renderer = "mathml"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
pygments_style = "friendly"


def setup(app):
    """Adds the form of the docstrings, the links of names, and the formulas."""
    app.add_autodoc_attrgetter(type, _attribute)
    app.connect("autodoc-skip-member", _skip)
    docstrings.setup(app)
    links.setup(app)
    mathml.setup(app)


def _attribute(cls, name, *default):
    # Keras's `__new__` takes anything; what a layer takes stands in `__init__`.
    return getattr(cls, "__init__" if name == "__new__" else name, *default)


def _skip(app, kind, name, obj, skip, options):
    # What Keras gives to a class is in Keras's own reference.
    module = getattr(getattr(obj, "fget", obj), "__module__", None) or ""
    return None if module.startswith("rank4class_tf") else True
