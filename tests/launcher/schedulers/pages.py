"""What a command prints, in parts as it may arrive."""

from __future__ import annotations

from collections.abc import Iterator


def page(text: str, size: int = 7) -> Iterator[str]:
    """A text in parts of so many characters, which end anywhere."""
    return (text[begin : begin + size] for begin in range(0, len(text), size))
