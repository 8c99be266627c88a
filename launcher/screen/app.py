"""The application: its screens show what a `Looker` has read, and keys act on the chosen run."""

from __future__ import annotations

import asyncio
import queue
import signal
import threading
import time
from collections.abc import Callable
from typing import ClassVar

from textual.app import App, SuspendNotSupported
from textual.binding import Binding, BindingType

from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.screen.commands import ENDED_FROM_OUTSIDE, open_shell, show_logs
from castoff.launcher.screen.listing import Item
from castoff.launcher.screen.looking import Looker, Opened
from castoff.launcher.screen.screens import RunScreen, RunsScreen
from castoff.launcher.screen.widgets import Help, Question
from castoff.launcher.submission.cancel import end, stop

_TICK = 0.25
"""Seconds between two updates of the screen from the looker."""

_HELP = """\
↑ ↓ PgUp PgDn  choose a run
Enter          open it: attempts, metrics, last lines
← →            another member of an array
Esc            back; in the list, end the search
l              logs; of a run that is active they are
               followed, and Ctrl-C returns here
s              ask it to save and stop; asks first
c              cancel it; asks first
x or !         a shell next to its ranks
f              show all, active or failed runs
a              show all runs that are over, or the newest
/              search for a part of an id
q              quit; Ctrl-Z leaves it to the shell

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
        Binding("x,exclamation_mark", "shell", show=False),
    ]

    def __init__(self, looker: Looker):
        super().__init__(ansi_color=True)
        self.looker = looker
        self.message = ""
        """The result of the last action."""
        self._said: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
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

    def tick(self) -> None:
        """Show new results."""
        while not self._said.empty():
            words, self.message = self._said.get()
            self._busy.discard(words)
            self.looker.look_now()
        state = (self.looker.seen, int(time.time()), self.message, self.screen)
        if state != self._shown and isinstance(self.screen, RunsScreen | RunScreen):
            self._shown = state
            self.screen.show()

    def notices(self) -> list[str]:
        """Notices for the user, the most urgent first."""
        lasts, silence = self.looker.look_lasts(), self.looker.unanswered()
        slow = f"reading the files of runs has taken {lasts:.0f} s so far: a file system may hang"
        return [*([slow] if lasts > _LATE else []), *([silence] if silence else []), *self.looker.seen.notes]

    def open(self, item: Item) -> None:
        """Show one run."""
        self.looker.open(Opened(item.path))
        self.push_screen(RunScreen(self, self.looker, item))

    def back(self) -> None:
        """Show the list again."""
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
        self.push_screen(Help(_HELP))

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
        """Ask the chosen run to stop, after the user has confirmed it."""
        item, _ = self._chosen()
        if item is None:
            return
        text = (
            f"Ask {printable(item.row.entry.id)} to save and stop?\nIt starts no further attempts or members."
        )
        self._act(item, "stopping", text, _stopped)

    def action_cancel_run(self) -> None:
        """Cancel the chosen run, after the user has confirmed it."""
        item, _ = self._chosen()
        if item is None:
            return
        text = f"Cancel {printable(item.row.entry.id)}?\nIt ends at once, and saves nothing."
        self._act(item, "cancelling", text, _cancelled)

    def _chosen(self) -> tuple[Item | None, int | None]:
        screen = self.screen
        return screen.chosen() if isinstance(screen, RunsScreen | RunScreen) else (None, None)

    def _act(self, item: Item, verb: str, question: str, work: Callable[[RunDirectory], str]) -> None:
        """Ask the user, then do something to a run in a thread, while the screen stays responsive."""
        if item.row.summary.state == "ended":
            self.message = f"{item.row.entry.id} is over already"
            return
        name = item.row.summary.name
        words = f"{verb} {name}"

        def do() -> None:
            try:
                result = work(item.row.run)
            except (CastoffError, OSError) as error:
                result = str(error)
            self._said.put((words, f"{name}: {' '.join(result.split())}"))

        def answered(yes: bool | None) -> None:
            if yes and words not in self._busy:
                self._busy.add(words)
                self._warned = False
                self.message = f"{words} …"
                threading.Thread(target=do, daemon=True).start()

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


def _stopped(run: RunDirectory) -> str:
    if not stop([run]):
        return "it is over already"
    return "asked to stop; a program that ignores CASTOFF_STOP_FILE keeps running"


def _cancelled(run: RunDirectory) -> str:
    (request,) = end([run])
    if request.problem:
        return request.problem
    status = request.after
    return f"{status.state}, {status.ending}" if status and status.ending else "cancelled"
