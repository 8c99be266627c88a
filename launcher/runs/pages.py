"""Pages of `castoff report`, by which they begin: castoff writes them into projects, but they are no code."""

from __future__ import annotations

from pathlib import Path

GENERATOR = "castoff report"
"""What a page names as its generator."""

BEGINNING = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="generator" content="{GENERATOR}">
"""


def is_page(path: Path) -> bool:
    """Whether a file is a page that castoff has written."""
    if path.suffix != ".html":
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(BEGINNING)) == BEGINNING.encode()
    except OSError:
        return False
