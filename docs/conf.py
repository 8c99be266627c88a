"""How Sphinx builds the site; `make site` runs it, `.ci/run` without a warning."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import tomllib

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))  # docs.extension, the extension below

from docs.extension.search import SCORER  # noqa: E402

_PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "castoff"
author = "The castoff authors"
copyright = author
version = release = _PROJECT["version"]
# Read the Docs builds each tag, and main as `latest`, which says so.
BUILT_AS = os.environ.get("READTHEDOCS_VERSION_NAME", "")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_design",
    "docs.extension",
]
exclude_patterns = ["extension", "generate", "pictures", "**/__pycache__"]

myst_enable_extensions = ["attrs_block", "colon_fence", "deflist"]
myst_heading_anchors = 4
smartquotes = False  # they would turn the -- of commands into a dash
default_role = "code"  # docstrings mark code by single backquotes

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
copybutton_prompt_text = r"\$ |> "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True

html_search_scorer = SCORER
html_static_path = ["extension/static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
templates_path = ["extension/templates"]
html_theme = "furo"
html_title = f"castoff {release}, {BUILT_AS}" if BUILT_AS == "latest" else f"castoff {release}"
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")
html_theme_options = {
    "source_repository": _PROJECT["urls"]["Source"],
    "source_branch": "main",
    "source_directory": "docs/",
}
