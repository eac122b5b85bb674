"""Makes links of the public names that stand in code on the pages: `RankmaxLoss(k=1)`."""

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

from docs import public


def setup(app):
    """Registers the transform."""
    app.add_transform(NamesToLinks)


class NamesToLinks(SphinxTransform):
    """Wraps the name in a reference, which Sphinx resolves, and fails to with a warning."""

    default_priority = 500

    def apply(self):
        """Goes through the code in running text and in tables."""
        for literal in list(self.document.findall(nodes.literal)):
            # Also what the role `py:obj` has made, and what is a link already.
            if isinstance(literal.parent, (addnodes.pending_xref, nodes.reference, nodes.title)):
                continue
            if full := public.target(literal.astext()):
                link = addnodes.pending_xref(
                    "",
                    refdomain="py",
                    reftype="obj",
                    reftarget=full,
                    refexplicit=True,
                    refwarn=True,
                    refdoc=self.env.docname,
                )
                literal.replace_self(link)
                link += literal
