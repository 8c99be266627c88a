"""What the screens ask of the application that shows them."""

from __future__ import annotations

from typing import Protocol

from castoff.launcher.screen.listing import Item


class Host(Protocol):
    """The application, as its screens see it."""

    message: str
    """What the last action came to."""

    def notices(self) -> list[str]:
        """What a person should know now, the most pressing first."""

    def open(self, item: Item) -> None:
        """Show one run."""

    def back(self) -> None:
        """Show the list again."""
