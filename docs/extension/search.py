"""Words by which the site's search finds a section: `<!-- Search: out of memory, oom -->` below its heading.

They become index entries, for what people type and headings do not say. Readers of Markdown do not see them.
"""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

SCORER = str(Path(__file__).with_name("scorer.js"))

_COMMENT = re.compile(r"<!-- Search: (.*?) -->", re.DOTALL)


class SearchTerms(SphinxTransform):
    """Puts index entries in the place of such comments."""

    default_priority = 500

    def apply(self, **kwargs: object) -> None:
        """Before the domain of index entries reads the page."""
        for raw in list(self.document.findall(nodes.raw)):
            if found := _COMMENT.fullmatch(raw.astext().strip()):
                raw.replace_self(addnodes.index(entries=_entries(found[1], raw)))


def _entries(terms: str, below: nodes.Node) -> list[tuple[str, str, str, str, None]]:
    """Main entries, which search ranks by how well they fit; at a page's title, those of the page."""
    section = below.parent
    while not isinstance(section, nodes.section):
        section = section.parent
    anchor = "" if isinstance(section.parent, nodes.document) else section["ids"][0]
    return [("single", " ".join(term.split()), anchor, "main", None) for term in terms.split(",")]
