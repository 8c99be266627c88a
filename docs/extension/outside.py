"""Links to files of the repository that are not pages of the site, as to an example: to the forge."""

from __future__ import annotations

import posixpath
import re

from sphinx.application import Sphinx

_OUT = re.compile(r"(?<=\]\()((?:\.\./)+[^)#\s]+)")


def link_to_the_forge(app: Sphinx, page: str, content: list[str]) -> None:
    """Change a page's text as Sphinx reads it."""

    def resolved(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), found[1]))
        if path.startswith("docs/"):
            return found[1]
        return f"{app.config.html_theme_options['source_repository']}/blob/main/{path}"

    content[0] = _OUT.sub(resolved, content[0])
