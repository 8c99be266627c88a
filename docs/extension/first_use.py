"""Links a page's first use of each term of the glossary to its entry there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
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

_ALSO_VERBS = ("run", "restart", "requeue", "resubmit", "resume", "preload")
_ARTICLES = ("a", "the", "each", "every", "this", "your", "one")
"""Before a word that is a verb elsewhere."""


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
        rest, made = str(text), list[nodes.Node]()
        while wanted and (found := _pattern(wanted).search(rest)):
            anchor = wanted.pop(found["term"].lower())
            uri = f"{self.app.builder.get_relative_uri(self.env.docname, GLOSSARY)}#{anchor}"
            if found.start():
                made.append(nodes.Text(rest[: found.start()]))
            made.append(nodes.reference("", found[0], internal=True, refuri=uri, classes=["term"]))
            rest = rest[found.end() :]
        if made:
            text.parent.replace(text, [*made, nodes.Text(rest)])


def _pattern(terms: Iterable[str]) -> re.Pattern[str]:
    """Any of the terms, the longest first, in the plural, too; not in capitals, as in RANK."""
    names = sorted(terms, key=len, reverse=True)
    ways = [re.escape(name) for name in names if name not in _ALSO_VERBS]
    ways += [
        f"(?<={re.escape(article)} ){name}" for name in names if name in _ALSO_VERBS for article in _ARTICLES
    ]
    return re.compile(rf"\b(?P<term>{'|'.join(ways)})(?:s|es)?\b")
