"""The application: its screens show what a `Looker` has read, and keys act on the chosen run."""

from __future__ import annotations

import asyncio
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

from textual.app import App, ScreenStackError, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.screen import Screen

from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.screen.commands import ENDED_FROM_OUTSIDE, open_shell, show_logs
from castoff.launcher.screen.listing import Item
from castoff.launcher.screen.looking import Looker, Opened
from castoff.launcher.screen.screens import RunScreen, RunsScreen
from castoff.launcher.screen.widgets import Help, Question, selected_text
from castoff.launcher.submission.cancel import end, stop
from castoff.launcher.text.words import counted

_TICK = 0.25
"""Seconds between two updates of the screen from the looker."""

_HELP = """\
↑ ↓ PgUp PgDn  choose a run
Enter          open it: attempts, metrics, last lines
Space          mark it: s, c and y then mean all marked
← →            another member of an array
Esc            back; in the list, end search and marks
l              logs; of a run that is active they are
               followed, and Ctrl-C returns here
s              ask it to save and stop; asks first
c              cancel it; asks first
x or !         a shell next to its ranks
y              copy its id, or the text that the mouse
               has selected
o O            sort by the next column; other direction
f              show all, active or failed runs
a              show all that are over, or the newest
/              search for a part of an id
q              quit; Ctrl-Z leaves it to the shell

The mouse chooses a run, opens the chosen one, scrolls,
and selects text. Any other key ends this help.

progress  steps of all; members of an array; why a run
          waits or failed
left      time to the last step at this pace; with
          `wall`, to the walltime, which comes first\
"""


class TopApp(App[int]):
    """`castoff top`."""

    TITLE = "castoff top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    Input { height: 1; border: none; padding: 0; background: ansi_default; color: ansi_default; }
    Input:focus { border: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", show=False),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
        Binding("question_mark", "help", show=False),
        Binding("l", "logs", show=False),
        Binding("s", "stop_run", show=False),
        Binding("c", "cancel_run", show=False),
        Binding("y", "copy", show=False),
        Binding("x,exclamation_mark", "shell", show=False),
    ]

    def __init__(self, looker: Looker):
        super().__init__(ansi_color=True)
        self.looker = looker
        self.message = ""
        """The result of the last action."""
        self._said: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self.failure: BaseException | None = None
        """The exception that has ended the application."""
        self._busy: set[str] = set()
        """The actions that are not finished, in words."""
        self._warned = False
        self._shown: tuple[object, ...] = ()

    def on_mount(self) -> None:
        """Start reading runs."""
        for number in (signal.SIGTERM, signal.SIGHUP):  # exit in order, which restores the terminal
            asyncio.get_running_loop().add_signal_handler(number, self.exit, 128 + number)
        self.push_screen(RunsScreen(self, self.looker))
        self.looker.start()
        self.set_interval(_TICK, self.tick)

    def on_unmount(self) -> None:
        """Stop reading runs."""
        self.looker.stop()

    def _handle_exception(self, error: Exception) -> None:
        """Pass over what textual does with keys that arrive after its last screen is gone."""
        if self.screen_stack or not isinstance(error, ScreenStackError):
            super()._handle_exception(error)

    def _fatal_error(self) -> None:
        """Exit without the page of local variables that textual prints."""
        self.failure = sys.exc_info()[1] or self._exception
        self._close_messages_no_wait()

    @property
    def _top(self) -> Screen[Any] | None:
        """The screen that is shown; None while the application is closing."""
        return self.screen if self.screen_stack else None

    def tick(self) -> None:
        """Show new results."""
        if self._top is None:
            return
        if self.looker.failure is not None:
            raise self.looker.failure
        while not self._said.empty():
            words, self.message = self._said.get()
            self._busy.discard(words)
            self.looker.look_now()
        state = (self.looker.seen, int(time.time()), self.message, self._top)
        if state != self._shown and isinstance(self._top, RunsScreen | RunScreen):
            self._shown = state
            self._top.show()

    def notices(self) -> list[str]:
        """Notices for the user, the most urgent first."""
        lasts, silence = self.looker.look_lasts(), self.looker.unanswered()
        slow = f"reading the files of runs has taken {lasts:.0f} s so far: a file system may hang"
        return [*([slow] if lasts > _LATE else []), *([silence] if silence else []), *self.looker.seen.notes]

    def open(self, item: Item) -> None:
        """Show one run."""
        if isinstance(self._top, RunsScreen):  # several keys may arrive before the screen changes
            self.looker.open(Opened(item.path))
            self.push_screen(RunScreen(self, self.looker, item))

    def back(self) -> None:
        """Show the list again."""
        if isinstance(self._top, RunScreen):
            self.looker.open(None)
            self.pop_screen()

    # Keys

    def action_leave(self) -> None:
        """Quit; while an action is not finished, only at the second press of the key."""
        if self._busy and not self._warned:
            self._warned = True
            self.message = f"{', '.join(sorted(self._busy))}: not finished; q again quits without waiting"
            return
        self.exit(0)

    def action_interrupt(self) -> None:
        """Quit with code 130, as castoff's other commands do at Ctrl-C."""
        self.exit(130)

    def action_help(self) -> None:
        """Show what the keys do."""
        if isinstance(self._top, RunsScreen | RunScreen):
            self.push_screen(Help(_HELP))

    def action_copy(self) -> None:
        """Copy the selected text, or the ids of the chosen runs, to the terminal's clipboard."""
        if self._top is None:
            return
        text = selected_text(self._top) or "\n".join(item.row.entry.id for item in self._meant())
        if text:
            self.copy_to_clipboard(text)
            lines = text.splitlines()
            self.message = f"copied {lines[0] if len(lines) == 1 else counted(len(lines), 'line')}"

    def action_logs(self) -> None:
        """Show the logs of the chosen run."""
        item, member = self._chosen()
        if item is not None:
            path, over = item.path, item.row.summary.over
            self._step_aside(lambda: show_logs(path, over=over, member=member))

    def action_shell(self) -> None:
        """Open a shell next to the chosen run's ranks."""
        item, member = self._chosen()
        if item is not None:
            path = item.path
            self._step_aside(lambda: open_shell(path, member=member))

    def action_stop_run(self) -> None:
        """Ask the chosen runs to stop, after the user has confirmed it."""
        self._act(
            "stopping",
            "Ask {} to save and stop?\nIt starts no further attempts or members.",
            "Ask {} to save and stop?\nThey start no further attempts or members.",
            _stopped,
        )

    def action_cancel_run(self) -> None:
        """Cancel the chosen runs, after the user has confirmed it."""
        self._act(
            "cancelling",
            "Cancel {}?\nIt ends at once, and saves nothing.",
            "Cancel {}?\nThey end at once, and save nothing.",
            _cancelled,
        )

    def _chosen(self) -> tuple[Item | None, int | None]:
        screen = self._top
        if isinstance(screen, RunsScreen | RunScreen) and screen.is_complete:
            return screen.chosen()
        return None, None

    def _meant(self) -> list[Item]:
        """The marked runs; if there are none, the chosen one."""
        screen = self._top
        marked = screen.marked() if isinstance(screen, RunsScreen) else []
        item, _ = self._chosen()
        return marked or ([item] if item else [])

    def _act(
        self, verb: str, of_one: str, of_several: str, work: Callable[[list[RunDirectory]], str]
    ) -> None:
        """Ask the user a question about one run or several, then do something to them in a thread, while the
        screen stays responsive.
        """
        screen, items = self._top, self._meant()  # none while a question is shown
        left = [item for item in items if item.row.summary.state != "ended"]
        if items and not left:
            over = f"{items[0].row.entry.id} is" if len(items) == 1 else f"all {len(items)} marked runs are"
            self.message = f"{over} over already"
        if not left:
            return
        name = left[0].row.summary.name if len(left) == 1 else f"{len(left)} runs"
        words = f"{verb} {name}"

        def do() -> None:
            try:
                result = work([item.row.run for item in left])
            except (CastoffError, OSError) as error:
                result = str(error)
            self._said.put((words, f"{name}: {' '.join(result.split())}"))

        def answered(yes: bool | None) -> None:
            if yes and words not in self._busy:
                if isinstance(screen, RunsScreen):
                    screen.unmark()
                self._busy.add(words)
                self._warned = False
                self.message = f"{words} …"
                threading.Thread(target=do, daemon=True).start()

        ids = [printable(item.row.entry.id) for item in left]
        if len(ids) == 1:
            question = of_one.format(ids[0])
        else:
            more = [f"and {len(ids) - _NAMED} more"] if len(ids) > _NAMED else []
            question = "\n".join([of_several.format(name), "", *ids[:_NAMED], *more])
        self.push_screen(Question(question), answered)

    def _step_aside(self, work: Callable[[], int]) -> None:
        """Suspend the screen while another command uses the terminal. `work` returns the
        command's exit code.
        """
        try:
            with self.suspend():
                code = work()
            if code in ENDED_FROM_OUTSIDE:
                self.exit(code)
        except SuspendNotSupported:
            self.message = "this terminal cannot be shared with another command"
        except CastoffError as error:
            self.message = str(error)
        self.refresh(layout=True)


_LATE = 15.0
"""Seconds of reading files after which a notice appears."""


_NAMED = 8
"""The maximum number of runs that a question names."""


def _stopped(runs: list[RunDirectory]) -> str:
    asked = stop(runs)
    if not asked:
        return "it is over already" if len(runs) == 1 else "they are over already"
    over = f"; {len(runs) - len(asked)} over already" if len(asked) < len(runs) else ""
    return f"asked to stop; a program that ignores CASTOFF_STOP_FILE keeps running{over}"


def _cancelled(runs: list[RunDirectory]) -> str:
    requests = end(runs)
    problems = [request.problem for request in requests if request.problem]
    if len(requests) > 1:
        return "; ".join([f"{len(requests) - len(problems)} cancelled", *problems])
    if problems:
        return problems[0]
    status = requests[0].after
    return f"{status.state}, {status.ending}" if status and status.ending else "cancelled"
