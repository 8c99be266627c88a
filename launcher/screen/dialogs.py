"""What lies over the screen until a key is pressed: a question, and the help."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen
from textual.widgets import Static

_CSS = """
    align: center middle; background: transparent;
"""
_BOX = """
    width: auto; max-width: 100%; height: auto; max-height: 100%; padding: 0 1; border: round ansi_default;
    background: ansi_default; color: ansi_default;
"""


class Question(ModalScreen[bool]):
    """A question that only y answers with yes."""

    DEFAULT_CSS = f"Question {{ {_CSS} }} Question Static {{ {_BOX} }}"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", show=False),
        Binding("n,q,escape,enter", "dismiss(False)", show=False),
    ]

    def __init__(self, text: str):
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """See textual."""
        yield Static(Text(f"{self._text}\n\ny yes   n no"))


class Help(ModalScreen[None]):
    """A text, until a key is pressed."""

    DEFAULT_CSS = f"Help {{ {_CSS} }} Help Static {{ {_BOX} }}"

    def __init__(self, text: str):
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """See textual."""
        yield Static(Text(self._text))

    def on_key(self, event: events.Key) -> None:
        """Go back, whatever the key means elsewhere."""
        event.stop()
        self.dismiss(None)
