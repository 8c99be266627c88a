"""Docstrings in Google's style; in those of attributes a colon is a colon, where Sphinx's own sees a type."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config
from sphinx.ext.napoleon.docstring import GoogleDocstring

from castoff.launcher.config.checked import Checked

_CONFIG: Any = Config(napoleon_use_rtype=False)  # of which napoleon is content with less than Sphinx has


def read_sections(app: Sphinx, what: Any, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Rewrite a docstring's sections, such as `Args:` and `Raises:`, as Sphinx's fields."""
    if what == "class" and issubclass(obj, Checked):
        # Without its fields, the last paragraph: pages of the reference have them.
        lines[:] = "\n".join(lines).rstrip().rpartition("\n\n")[0].splitlines()
    if what not in ("attribute", "property"):
        lines[:] = str(GoogleDocstring(lines, _CONFIG, app, what, name, obj, options)).splitlines()
