"""Links public names that stand in code: `RankmaxLoss(k=1)`, `ops.ranks`."""

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode


def setup(app):
    """Registers the transform."""
    app.add_post_transform(NamesToLinks)


def short_names(objects):
    """Maps full and short names of Sphinx's objects to full names, if unambiguous."""
    result, several = {}, set()
    for full, entry in objects.items():
        parts = full.split(".")
        # The name of a method alone may be anything, and so may `evaluate` or `ranks`.
        is_plain = (
            parts[-2:][0][0].isupper() or parts[-1].isalpha() and parts[-1].islower()
        )
        for start in range(0 if entry.aliased else len(parts) - is_plain):
            name = ".".join(parts[start:])
            if result.setdefault(name, full) != full:
                several.add(name)
    return {name: full for name, full in result.items() if name not in several}


class NamesToLinks(SphinxPostTransform):
    """Wraps code that begins with a public name in a link to its description."""

    default_priority = 5

    def run(self):
        """Goes through the code in running text and in tables."""
        objects = self.env.domains.python_domain.objects
        names = short_names(objects)
        for literal in list(self.document.findall(nodes.literal)):
            full = names.get(literal.astext().partition("(")[0])
            if full and not isinstance(literal.parent, (nodes.reference, nodes.title)):
                entry = objects[full]
                page, here = entry.docname, self.env.docname
                link = make_refnode(
                    self.app.builder, here, page, entry.node_id, [], full
                )
                literal.replace_self(link)
                link += literal
