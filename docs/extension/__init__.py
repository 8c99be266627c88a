"""What the site has beyond Sphinx's own: console blocks, links to the glossary, terms for its search, …"""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx

from docs.extension.console import ConsoleLexer
from docs.extension.docstrings import read_sections
from docs.extension.first_use import FirstUse
from docs.extension.outside import link_to_the_forge
from docs.extension.search import SearchTerms
from docs.extension.tabs import SchedulerTabs


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_lexer("console", ConsoleLexer)
    app.add_transform(SearchTerms)
    app.add_transform(SchedulerTabs)
    app.add_post_transform(FirstUse)
    app.connect("autodoc-process-docstring", read_sections)
    app.connect("source-read", link_to_the_forge)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
