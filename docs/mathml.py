"""Formulas as MathML, which browsers draw by themselves: no script, no network."""

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.errors import SphinxError

# What docutils does not know, and what comes close.
REPLACEMENTS = {
    r"\dots": r"\ldots",
    r"\Big": "",
    r"\tfrac": r"\frac",
    # A style must come first in its group, and changes little in a formula that stands
    # alone.
    r"\textstyle": "",
}


def setup(app):
    """Registers the renderer."""
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))


def to_mathml(formula, block):
    """LaTeX as MathML; a formula that docutils cannot read stops the build."""
    for command, replacement in REPLACEMENTS.items():
        formula = formula.replace(command, replacement)
    try:
        return latex2mathml.tex2mathml(" ".join(formula.split()), as_block=block)
    except Exception as error:
        raise SphinxError(f"Cannot read the formula {formula!r}: {error}") from error


def _visit_inline(translator, node):
    translator.body.append(to_mathml(node.astext(), block=False))
    raise nodes.SkipNode


def _visit_block(translator, node):
    formula = to_mathml(node.astext(), block=True)
    translator.body.append(f'<div class="formula">{formula}</div>')
    raise nodes.SkipNode
