"""Links a page's first use of each term of the glossary to its entry there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform

GLOSSARY = "reference/glossary"
_NOT_IN = (
    nodes.reference,
    nodes.title,
    nodes.literal,
    nodes.literal_block,
    addnodes.pending_xref,
    nodes.term,
)


class FirstUse(SphinxPostTransform):
    """In paragraphs and lists: headings, tables and code stay as they are."""

    default_priority = 300  # links of the page's own are resolved

    def run(self, **kwargs: Any) -> None:
        """Link each term once."""
        if self.env.docname == GLOSSARY or self.env.docname.startswith("reference/api"):
            return
        wanted = dict(self._terms)
        for text in list(self._texts()):
            if wanted:
                self._link(text, wanted)

    @cached_property
    def _terms(self) -> dict[str, str]:
        """The glossary's terms, lower case, and their anchors."""
        found = self.env.domains.standard_domain._terms
        return {name: anchor for name, (_, anchor) in found.items()}

    def _texts(self) -> Iterator[nodes.Text]:
        for text in self.document.findall(nodes.Text):
            around, kinds = text.parent, []
            while around is not None:
                kinds.append(around)
                around = around.parent
            if any(isinstance(one, nodes.paragraph) for one in kinds) and not any(
                isinstance(one, (*_NOT_IN, nodes.table)) for one in kinds
            ):
                yield text

    def _link(self, text: nodes.Text, wanted: dict[str, str]) -> None:
        names = "|".join(sorted(map(re.escape, wanted), key=len, reverse=True))
        rest, made = str(text), list[nodes.Node]()
        while found := re.search(rf"\b({names})(?:s|es)?\b", rest, re.IGNORECASE):
            anchor = wanted.pop(found[1].lower())
            uri = f"{self.app.builder.get_relative_uri(self.env.docname, GLOSSARY)}#{anchor}"
            if found.start():
                made.append(nodes.Text(rest[: found.start()]))
            made.append(nodes.reference("", found[0], internal=True, refuri=uri, classes=["term"]))
            rest = rest[found.end() :]
            names = "|".join(sorted(map(re.escape, wanted), key=len, reverse=True))
            if not wanted:
                break
        if made:
            text.parent.replace(text, [*made, nodes.Text(rest)])
