"""The two screens of `castoff top`, the list of runs and one run, and their interface to the application."""

from __future__ import annotations

import time
from typing import ClassVar, Protocol

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input

from castoff.launcher.errors import printable
from castoff.launcher.screen import page
from castoff.launcher.screen.detail import Detail
from castoff.launcher.screen.listing import FILTERS, WIDE, Item, Order, heading, lines, next_order, shown
from castoff.launcher.screen.looking import Looker, Opened
from castoff.launcher.screen.widgets import Lines, OneLine, footer
from castoff.launcher.text.layout import Span


class Host(Protocol):
    """The application, as the screens use it."""

    message: str
    """The result of the last action."""

    def notices(self) -> list[str]:
        """Notices for the user, the most urgent first."""

    def open(self, item: Item) -> None:
        """Show one run."""

    def back(self) -> None:
        """Show the list again."""


_KEYS = {
    "Enter": "open",
    "l": "logs",
    "s": "stop",
    "c": "cancel",
    "x": "shell",
    "space": "mark",
    "o": "order",
    "f": "filter",
    "/": "search",
    "?": "help",
    "q": "quit",
}


class _TopScreen(Screen[None]):
    """What the two screens have in common."""

    @property
    def is_complete(self) -> bool:
        """Whether the screen is neither being composed nor removed."""
        return self.is_attached and bool(self.query("#keys"))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Let keys that arrive while the screen is removed do nothing."""
        return self.is_complete and super().check_action(action, parameters)


class RunsScreen(_TopScreen):
    """All runs, one a line. The chosen run stays chosen when its line moves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open_run", show=False),
        Binding("f", "filter", show=False),
        Binding("a", "everything", show=False),
        Binding("slash", "search", show=False),
        Binding("escape", "clear", show=False),
        Binding("space", "mark", show=False),
        Binding("o", "order", show=False),
        Binding("O", "reverse", show=False),
    ]

    def __init__(self, host: Host, looker: Looker):
        super().__init__()
        self._host = host
        self._looker = looker
        self._filter = "all"
        self._search = ""
        self._everything = False
        self._order: Order | None = None
        self._marked: set[str] = set()
        """The directories of the marked runs."""
        self._items: list[Item] = []
        self._path: str | None = None
        """The directory of the chosen run; None: the first run, as the user has chosen none."""

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
        """Show the results so far."""
        self.query_one(Input).display = False
        self.query_one(Lines).focus()
        self.show()

    def chosen(self) -> tuple[Item | None, int | None]:
        """The run at the cursor, and None for its member."""
        index = self.query_one(Lines).cursor or 0
        return (self._items[index] if index < len(self._items) else None), None

    def marked(self) -> list[Item]:
        """The marked runs, whether the filter shows them or not."""
        return [item for item in self._looker.seen.items if item.path in self._marked]

    def unmark(self) -> None:
        """Mark no run."""
        self._marked.clear()
        self.show()

    def show(self) -> None:
        """Show the newest results."""
        if not self.is_complete:
            return
        seen, width, now = self._looker.seen, self.app.size.width, time.time()
        self._looker.show_queues(width >= WIDE)
        self._marked &= {item.path for item in seen.items}
        self._items = shown(seen.items, self._filter, self._search, self._order)
        headings, *rows = lines(self._items, now, width, self._order, self._marked)
        paths = [item.path for item in self._items]
        index = paths.index(self._path) if self._path in paths else 0
        self.query_one(Lines).show(rows, index)
        left_out = 0 if self._everything else seen.left_out
        words = heading(seen.items, self._filter, self._search, left_out, len(self._marked))
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
        """Remember the chosen run."""
        if event.at < len(self._items):
            self._path = self._items[event.at].path
            self._host.message = ""

    def on_lines_opened(self) -> None:
        """Open the run that was clicked."""
        self.action_open_run()

    def on_resize(self, _: events.Resize) -> None:
        """Lay out again."""
        self.show()

    # Keys

    def action_open_run(self) -> None:
        """Show the details of the chosen run."""
        item, _ = self.chosen()
        if item is not None:
            self._path = item.path
            self._host.open(item)

    def action_filter(self) -> None:
        """Select the next filter."""
        names = [*FILTERS]
        self._filter = names[(names.index(self._filter) + 1) % len(names)]
        self.show()

    def action_everything(self) -> None:
        """Switch between all runs that are over and only the newest."""
        self._everything = not self._everything
        self._looker.show_everything(self._everything)

    def action_order(self) -> None:
        """Sort by the next column."""
        self._order = next_order(self._order, self.app.size.width)
        self.show()

    def action_reverse(self) -> None:
        """Sort in the other direction."""
        if self._order is not None:
            self._order = self._order._replace(reverse=not self._order.reverse)
            self.show()

    def action_mark(self) -> None:
        """Mark the chosen run, or unmark it, and choose the next."""
        item, _ = self.chosen()
        if item is not None:
            self._path = item.path
            self._marked ^= {item.path}
            self.show()
            self.query_one(Lines).action_move(1)

    def action_search(self) -> None:
        """Show the field for a search."""
        self.query_one(Input).display = True
        self.set_focus(self.query_one(Input))  # at once, since the next key is part of the text

    def action_clear(self) -> None:
        """End the search, mark no run, and show all runs."""
        self.query_one(Input).value = ""
        self._end_search()
        self.unmark()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search while the user types."""
        self._search = event.value
        self.show()

    def on_input_submitted(self) -> None:
        """Keep the search, and hide its field."""
        self._end_search()

    def _end_search(self) -> None:
        self.query_one(Input).display = False
        self.set_focus(self.query_one(Lines))


_NONE = "no runs yet; castoff submit starts one, and castoff list --scan FOLDER finds those in a folder"


_RUN_KEYS = {"Esc": "back", "l": "logs", "s": "stop", "c": "cancel", "x": "shell", "?": "help", "q": "quit"}
_ABOVE = 3
"""The number of lines of the screen other than the page's."""


class RunScreen(_TopScreen):
    """One run: its state, attempts, progress and last lines."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,backspace", "back", show=False),
        Binding("left", "member(-1)", show=False),
        Binding("right", "member(1)", show=False),
        Binding("space", "page", show=False),
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
        """Show the results so far."""
        self.query_one(Lines).focus()
        self.show()

    def chosen(self) -> tuple[Item | None, int | None]:
        """The run, and the number of the shown member if it is an array."""
        detail = self._detail()
        self._item = next(
            (item for item in self._looker.seen.items if item.path == self._item.path), self._item
        )
        return self._item, detail.member.member if detail and len(detail.status.members) > 1 else None

    def show(self) -> None:
        """Show the newest results."""
        if not self.is_complete:
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
        self._say("keys", footer(_RUN_KEYS, width), "reverse")

    def _say(self, id: str, text: str, style: str = "") -> None:
        self.query_one(f"#{id}", OneLine).say(text, style)

    def _detail(self) -> Detail | None:
        """The newest details of this run; None if there are none yet."""
        detail = self._looker.seen.detail
        return detail if detail and detail.status.directory == self._item.path else None

    def on_resize(self, _: events.Resize) -> None:
        """Lay out again."""
        self.show()

    # Keys

    def action_back(self) -> None:
        """Show the list again."""
        self._host.back()

    def action_page(self) -> None:
        """Scroll by a screen."""
        self.query_one(Lines).action_page(1)

    def action_member(self, by: int) -> None:
        """Show another member of an array."""
        detail = self._detail()
        if detail is None:
            return
        numbers = [member.member for member in detail.status.members]
        current = detail.member.member if self._member is None else self._member
        index = min(max(numbers.index(current) + by, 0), len(numbers) - 1)
        self._member = numbers[index]
        self._looker.open(Opened(self._item.path, self._member))
