"""The widgets of the screens: lines with a cursor, single lines, questions, help, and the keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.geometry import Region, Size
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Static

from castoff.launcher.errors import printable
from castoff.launcher.text.layout import Line
from castoff.launcher.text.shortened import cut

if TYPE_CHECKING:
    from textual.selection import Selection


class Lines(ScrollView, can_focus=True, inherit_bindings=False):
    """A list of lines, as many as fit the screen. With a cursor, one line is chosen.

    textual's DataTable does not fit columns to a width, opens a row at the first click (textual 1.0), and
    takes 0.4 s of CPU time to show 2,000 other rows; this widget takes 0.06 s.
    """

    DEFAULT_CSS = """
    Lines { height: 1fr; scrollbar-size: 0 0; background: ansi_default; color: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "move(-1000000)", show=False),
        Binding("end", "move(1000000)", show=False),
    ]

    class Opened(Message):
        """The line at the cursor was opened, by Enter or by a click on it."""

        def __init__(self, at: int):
            super().__init__()
            self.at = at

    class Moved(Message):
        """The cursor has moved to another line."""

        def __init__(self, at: int):
            super().__init__()
            self.at = at

    def __init__(self, *, cursor: bool, id: str | None = None):
        """`cursor`: whether a line is chosen; otherwise the keys scroll."""
        super().__init__(id=id)
        self.lines: Sequence[Line] = ()
        self.cursor: int | None = 0 if cursor else None
        """The index of the chosen line."""

    def show(self, lines: Sequence[Line], cursor: int | None = None) -> None:
        """Show these lines, and put the cursor on one of them."""
        if lines == self.lines and cursor == self.cursor:
            return
        self.lines = lines
        if self.cursor is not None:
            self.cursor = min(max(self.cursor if cursor is None else cursor, 0), max(len(lines) - 1, 0))
        self.virtual_size = Size(self.size.width, len(lines))
        self._keep_in_sight()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """See textual's line API."""
        index, width = y + self.scroll_offset.y, self.size.width
        if index >= len(self.lines):
            return Strip.blank(width)
        segments = [Segment(span.text, style_of(span.style)) for span in self.lines[index]]
        strip = Strip(segments).adjust_cell_length(width, Style.null())
        if index == self.cursor:
            strip = strip.apply_style(Style(reverse=True))
        if not hasattr(self, "text_selection"):  # textual 1
            return strip
        selected = self.text_selection and self.text_selection.get_span(index)
        if selected:
            begin, end = selected
            end = width if end < 0 else end
            before, inside, after = strip.divide([begin, end, width]) if begin < end else (strip, None, None)
            if inside is not None and after is not None:
                strip = Strip.join([before, inside.apply_style(_SELECTED), after])
        return strip.apply_offsets(0, index)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """See textual."""
        return selection.extract("\n".join("".join(span.text for span in line) for line in self.lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """See textual."""
        self.refresh()

    def action_move(self, by: int) -> None:
        """Move the cursor, or scroll."""
        if self.cursor is None:
            self.scroll_to(y=self.scroll_offset.y + by, animate=False)
            return
        index = min(max(self.cursor + by, 0), max(len(self.lines) - 1, 0))
        if index != self.cursor:
            self.cursor = index
            self._keep_in_sight()
            self.refresh()
            self.post_message(self.Moved(index))

    def action_page(self, by: int) -> None:
        """Move the cursor, or scroll, by a screen."""
        self.action_move(by * max(self.size.height - 1, 1))

    def on_click(self, event: events.Click) -> None:
        """Choose the clicked line, or open it if it is chosen already."""
        index = event.y + self.scroll_offset.y
        if self.cursor is None or index >= len(self.lines) or selected_text(self.screen):
            return
        if index == self.cursor:
            self.post_message(self.Opened(index))
        else:
            self.action_move(index - self.cursor)

    def _keep_in_sight(self) -> None:
        if self.cursor is not None:
            self.scroll_to_region(Region(0, self.cursor, 1, 1), animate=False)


class OneLine(Static):
    """A line of text, cut to the width; hidden while the text is empty."""

    DEFAULT_CSS = """
    OneLine { height: 1; background: ansi_default; color: ansi_default; }
    """

    def say(self, text: str, style: str = "") -> None:
        """Show this text."""
        self.display = bool(text)
        self.update(Text(cut(printable(text), max(self.app.size.width, 1)), style=style, no_wrap=True))


_SELECTED = Style(underline=True, bold=True)


def selected_text(screen: Screen[Any]) -> str:
    """The text that the mouse has selected; empty if there is none."""
    if not hasattr(screen, "get_selected_text"):  # textual 1
        return ""
    return "\n".join(line.rstrip() for line in (screen.get_selected_text() or "").splitlines())


@cache
def style_of(name: str) -> Style:
    """The rich style with this name."""
    return Style.parse(name) if name else Style.null()


_CSS = """
    align: center middle; background: transparent;
"""
_BOX = """
    width: auto; max-width: 100%; height: auto; max-height: 100%; padding: 0 1; border: round ansi_default;
    background: ansi_default; color: ansi_default;
"""


class _Dialog(ModalScreen[bool]):
    """A screen above others that is answered once, however many keys arrive together."""

    def __init__(self, text: str):
        super().__init__()
        self._text = text
        self._is_answered = False

    def action_answer(self, answer: bool) -> None:
        """Go back with this answer."""
        if not self._is_answered:
            self._is_answered = True
            self.dismiss(answer)


class Question(_Dialog):
    """A question to which only the key y answers yes."""

    DEFAULT_CSS = f"Question {{ {_CSS} }} Question Static {{ {_BOX} }}"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", show=False),
        Binding("n,q,escape,enter", "answer(False)", show=False),
    ]

    def compose(self) -> ComposeResult:
        """See textual."""
        yield Static(Text(f"{self._text}\n\ny yes   n no"))


class Help(_Dialog):
    """A text that is shown until a key is pressed. The keys that scroll a list scroll it."""

    DEFAULT_CSS = f"""
    Help {{ {_CSS} }}
    Help VerticalScroll {{ {_BOX} scrollbar-size-vertical: 1; }}
    Help Static {{ width: auto; background: ansi_default; color: ansi_default; }}
    """

    def compose(self) -> ComposeResult:
        """See textual."""
        with VerticalScroll() as text:
            text.can_focus = False
            yield Static(Text(self._text))

    def on_key(self, event: events.Key) -> None:
        """Scroll, or go back if it is another key."""
        event.stop()
        text = self.query_one(VerticalScroll)
        page = max(text.size.height - 1, 1)
        by = {"up": -1, "k": -1, "down": 1, "j": 1, "pageup": -page, "pagedown": page, "space": page}
        if event.key in by:
            text.scroll_relative(y=by[event.key], animate=False, immediate=True)
        elif event.key == "home":
            text.scroll_home(animate=False, immediate=True)
        elif event.key == "end":
            text.scroll_end(animate=False, immediate=True)
        else:
            self.action_answer(True)


_LAST_TO_GO = ("?", "q", "Esc", "Enter")


def footer(keys: Mapping[str, str], width: int) -> str:
    """The keys and their actions, as many as fit; the help lists all."""
    shown = dict(keys)
    others = [key for key in reversed([*keys]) if key not in _LAST_TO_GO]
    while len(_words(shown)) > width and others:
        shown.pop(others.pop(0))
    return _words(shown).ljust(width)


def _words(keys: Mapping[str, str]) -> str:
    return "  ".join(f"{key} {words}" for key, words in keys.items())
