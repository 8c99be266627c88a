"""The castoff command, which is also `python -m castoff`."""

from __future__ import annotations

from castoff.program import end_on_interrupt

TYPE_CHECKING = False  # importing `typing` would take a tenth of the start's time
if TYPE_CHECKING:
    from typing import NoReturn


def console() -> NoReturn:
    """Run castoff's command line."""
    end_on_interrupt()
    from castoff.launcher.cli.main import console

    console()


if __name__ == "__main__":
    console()
