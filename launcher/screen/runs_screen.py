"""The screen with the list of runs."""

from __future__ import annotations

import time
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from castoff.launcher.screen.footer import footer
from castoff.launcher.screen.host import Host
from castoff.launcher.screen.listing import FILTERS, Item, heading, lines, shown
from castoff.launcher.screen.looking import Looker
from castoff.launcher.screen.widgets import Lines, OneLine

_KEYS = {
    "Enter": "open",
    "l": "logs",
    "s": "stop",
    "c": "cancel",
    "x": "shell",
    "f": "filter",
    "/": "search",
    "?": "help",
    "q": "quit",
}


class RunsScreen(Screen[None]):
    """All runs, one a line; the chosen one stays chosen wherever its line moves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open_run", show=False),
        Binding("f", "filter", show=False),
        Binding("a", "everything", show=False),
        Binding("slash", "search", show=False),
        Binding("escape", "clear", show=False),
    ]

    def __init__(self, host: Host, looker: Looker):
        super().__init__()
        self._host = host
        self._looker = looker
        self._filter = "all"
        self._search = ""
        self._everything = False
        self._items: list[Item] = []
        self._path: str | None = None
        """The directory of the chosen run; None: nobody has chosen, so it is the first."""

    def compose(self) -> ComposeResult:
        """See textual."""
        yield OneLine(id="title")
        yield OneLine(id="notice")
        yield OneLine(id="headings")
        yield Lines(cursor=True, id="runs")
        yield Input(placeholder="search: part of a name or an id", id="search")
        yield OneLine(id="message")
        yield OneLine(id="keys")

    def on_mount(self) -> None:
        """Show what is known."""
        self.query_one(Input).display = False
        self.query_one(Lines).focus()
        self.show()

    def chosen(self) -> tuple[Item | None, int | None]:
        """The run at the cursor; no member of it."""
        at = self.query_one(Lines).cursor or 0
        return (self._items[at] if at < len(self._items) else None), None

    def show(self) -> None:
        """Show what was seen last."""
        if not (self.is_attached and self.query("#keys")):  # it is being made, or taken away
            return
        seen, width, now = self._looker.seen, self.app.size.width, time.time()
        self._items = shown(seen.items, self._filter, self._search)
        headings, *rows = lines(self._items, now, width)
        paths = [item.path for item in self._items]
        at = paths.index(self._path) if self._path in paths else 0
        self.query_one(Lines).show(rows, at)
        words = heading(seen.items, self._filter, self._search, 0 if self._everything else seen.left_out)
        clock = time.strftime("%H:%M:%S")
        self._say("title", f"{words[: width - 10].ljust(width - 9)} {clock}", "bold")
        notices = self._host.notices()
        self._say("notice", notices[0] if notices else "", "bold")
        self._say("headings", "".join(span.text for span in headings), "bold underline")
        if not rows:
            self._say(
                "headings", "looking …" if seen.time is None else "no such runs" if seen.items else _NONE
            )
        self._say("message", self._host.message)
        self._say("keys", footer(_KEYS, width), "reverse")

    def _say(self, id: str, text: str, style: str = "") -> None:
        self.query_one(f"#{id}", OneLine).say(text, style)

    def on_lines_moved(self, event: Lines.Moved) -> None:
        """Remember which run is chosen."""
        if event.at < len(self._items):
            self._path = self._items[event.at].path
            self._host.message = ""

    def on_lines_opened(self) -> None:
        """Open the run that was clicked."""
        self.action_open_run()

    def on_resize(self, _: events.Resize) -> None:
        """Lay out anew."""
        self.show()

    # Keys

    def action_open_run(self) -> None:
        """Show the chosen run by itself."""
        item, _ = self.chosen()
        if item is not None:
            self._path = item.path
            self._host.open(item)

    def action_filter(self) -> None:
        """Show others."""
        names = [*FILTERS]
        self._filter = names[(names.index(self._filter) + 1) % len(names)]
        self.show()

    def action_everything(self) -> None:
        """Show all runs that are over, or the newest alone."""
        self._everything = not self._everything
        self._looker.show_everything(self._everything)

    def action_search(self) -> None:
        """Let the reader type what to search for."""
        self.query_one(Input).display = True
        self.set_focus(self.query_one(Input))  # at once: the next key is part of the text

    def action_clear(self) -> None:
        """Search for nothing any more."""
        self.query_one(Input).value = ""
        self._end_search()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search as the reader types."""
        self._search = event.value
        self.show()

    def on_input_submitted(self) -> None:
        """Keep what was found."""
        self._end_search()

    def _end_search(self) -> None:
        self.query_one(Input).display = False
        self.set_focus(self.query_one(Lines))


_NONE = "no runs yet; castoff submit starts one, and castoff list --scan FOLDER finds those in a folder"
