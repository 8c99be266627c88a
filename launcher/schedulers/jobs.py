"""What a scheduler says of a job, whichever scheduler it is."""

from __future__ import annotations

from typing import Protocol


class JobTold(Protocol):
    """What a scheduler says of one job, or of one of an array's."""

    @property
    def job(self) -> str:
        """Its id; an array's own, whichever of its jobs this is."""

    @property
    def task(self) -> int | None:
        """Its index in the array; None if it is in none."""

    @property
    def word(self) -> str:
        """Its state in the scheduler's word."""

    @property
    def stage(self) -> str:
        """pending, running, ended or unknown: where it is."""

    @property
    def ending(self) -> str:
        """What became of it, in castoff's word."""

    @property
    def ended_itself(self) -> bool:
        """Whether its script ended by itself, and so had the last word."""

    @property
    def may_have_been_killed(self) -> bool:
        """Whether it may have been killed, though it looks as if it ended well."""

    @property
    def start(self) -> float | None:
        """When it began; of a job that waits, when it might. Seconds since the epoch."""

    @property
    def submitted(self) -> float | None:
        """Since when it is in the queue: of one that was queued again, since then."""

    @property
    def end(self) -> float | None:
        """When it ended."""

    @property
    def exit_code(self) -> int | None:
        """Its script's code, or 128 and the number of the signal that ended it; None: not told."""

    @property
    def waits(self) -> str:
        """Why it waits, in plain words, and with the scheduler's own."""

    @property
    def is_stuck(self) -> bool:
        """Whether it waits until somebody does something."""

    @property
    def is_void(self) -> bool:
        """Whether it ended because what it waited for could no longer be."""

    def why(self, own_user: str) -> str | None:
        """Why it ended so, where that is more than castoff's word for it says."""

    def runs(self, script: str) -> bool:
        """Whether it is that of a script in a run directory, which is its tag."""


def names_script(told: str, script: str) -> bool:
    """Whether a scheduler's words name a script in a run directory.

    A run directory that was moved since keeps its name, which is no other's.
    """
    name = "/".join(script.rsplit("/", 2)[-2:])
    return told == script or told.endswith(("/" + name, " " + script))
