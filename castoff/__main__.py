"""The castoff command, which is also `python -m castoff`."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` would take a tenth of a start's time
if TYPE_CHECKING:
    from typing import NoReturn


def end_on_interrupt() -> None:
    """Let Ctrl-C end this process at once, without a traceback, until something else is said about it.

    By the signal itself: a shell then shows code 130, and ends a loop that runs castoff. Where it is ignored,
    as in a shell's background job, it stays so.
    """
    # What `signal` is made of, whose import would take a tenth of a start's time.
    import _signal  # type: ignore[import-not-found]

    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def console() -> NoReturn:
    """Run the command."""
    end_on_interrupt()
    from castoff.launcher.cli.main import console

    console()


if __name__ == "__main__":
    console()
