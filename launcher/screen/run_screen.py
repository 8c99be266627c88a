"""The screen with one run."""

from __future__ import annotations

import time
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from castoff.launcher.errors import printable
from castoff.launcher.screen import page
from castoff.launcher.screen.detail import Detail
from castoff.launcher.screen.footer import footer
from castoff.launcher.screen.host import Host
from castoff.launcher.screen.listing import Item
from castoff.launcher.screen.looking import Looker, Opened
from castoff.launcher.screen.widgets import Lines, OneLine
from castoff.launcher.text.layout import Span

_KEYS = {"Esc": "back", "l": "logs", "s": "stop", "c": "cancel", "x": "shell", "?": "help", "q": "quit"}
_ABOVE = 3
"""Lines of the screen that are not the page's."""


class RunScreen(Screen[None]):
    """One run: its state, attempts, progress and last lines."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "back", show=False),
        Binding("left", "member(-1)", show=False),
        Binding("right", "member(1)", show=False),
    ]

    def __init__(self, host: Host, looker: Looker, item: Item):
        super().__init__()
        self._host = host
        self._looker = looker
        self._item = item
        self._member: int | None = None

    def compose(self) -> ComposeResult:
        """See textual."""
        yield OneLine(id="title")
        yield OneLine(id="notice")
        yield Lines(cursor=False, id="page")
        yield OneLine(id="message")
        yield OneLine(id="keys")

    def on_mount(self) -> None:
        """Show what is known."""
        self.query_one(Lines).focus()
        self.show()

    def chosen(self) -> tuple[Item | None, int | None]:
        """The run, and its member, where it is an array."""
        detail = self._detail()
        self._item = next((one for one in self._looker.seen.items if one.path == self._item.path), self._item)
        return self._item, detail.member.member if detail and len(detail.status.members) > 1 else None

    def show(self) -> None:
        """Show what was seen last."""
        if not (self.is_attached and self.query("#keys")):  # it is being made, or taken away
            return
        detail, width = self._detail(), self.app.size.width
        if detail is not None:
            height = self.app.size.height - _ABOVE - len(self._host.notices()[:1]) + (not self._host.message)
            self.query_one(Lines).show(page.lines(detail, time.time(), width, height))
        else:
            self.query_one(Lines).show([[Span("looking …")]])
        clock = time.strftime("%H:%M:%S")
        self._say(
            "title", f"{printable(self._item.row.entry.id)[: width - 10].ljust(width - 9)} {clock}", "bold"
        )
        notices = self._host.notices()
        self._say("notice", notices[0] if notices else "", "bold")
        self._say("message", self._host.message)
        self._say("keys", footer(_KEYS, width), "reverse")

    def _say(self, id: str, text: str, style: str = "") -> None:
        self.query_one(f"#{id}", OneLine).say(text, style)

    def _detail(self) -> Detail | None:
        """What was seen of this run; None: nothing yet."""
        detail = self._looker.seen.detail
        return detail if detail and detail.status.directory == self._item.path else None

    def on_resize(self, _: events.Resize) -> None:
        """Lay out anew."""
        self.show()

    # Keys

    def action_back(self) -> None:
        """Show the list again."""
        self._host.back()

    def action_member(self, by: int) -> None:
        """Show another member of an array."""
        detail = self._detail()
        if detail is None:
            return
        numbers = [one.member for one in detail.status.members]
        now = detail.member.member if self._member is None else self._member
        at = min(max(numbers.index(now) + by, 0), len(numbers) - 1)
        self._member = numbers[at]
        self._looker.open(Opened(self._item.path, self._member))
