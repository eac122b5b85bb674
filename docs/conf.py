"""Sphinx's settings. `scripts/docs.sh` builds the pages."""

import os
import sys
from pathlib import Path

# TF-Ranking runs on Keras 2 alone, so that `rank4class_tf.tfr` can be read.
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(Path(__file__).parents[1]))

import rank4class_tf  # noqa: E402
from docs import api_pages, docstrings, links, mathml  # noqa: E402

project = "rank4class_tf"
author = "The rank4class_tf developers"
release = version = rank4class_tf.__version__
html_title = f"{project} {release}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

# Signatures show defaults; the docstrings say in words what an argument may be.
autodoc_typehints = "none"
autodoc_inherit_docstrings = False
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_attr_annotations = False  # They name private modules of TensorFlow.
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_math_renderer = "mathml"
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
pygments_style = "friendly"


def setup(app):
    """Adds the API pages, the form of the docstrings and the formulas."""
    api_pages.write(Path(app.srcdir) / "api")
    docstrings.setup(app)
    links.setup(app)
    mathml.setup(app)
