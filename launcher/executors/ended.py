"""What to say of a function whose job is over and left no result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from submitit.core import utils

from launcher.executors.environment import FunctionPaths
from launcher.executors.watcher import Known
from launcher.logs.failures import FailedRank, failed_rank
from launcher.logs.tail import tail_start
from launcher.runs.run import Run, said_again
from launcher.runs.states import failure_words

_LAST_LINES = 40


class JobEndedError(utils.UncompletedJobError):
    """A job is over and has no result; the text says how it ended, and what to do."""

    def __init__(self, message: str, run: Run, ending: str):
        super().__init__(message)
        self.run = run
        """The run directory."""
        self.ending = ending
        """castoff's word for it: walltime, cancelled, again, failed …"""

    def __reduce__(self) -> tuple[type[JobEndedError], tuple[str, Run, str]]:
        return JobEndedError, (str(self), self.run, self.ending)

    @classmethod
    def of(cls, run: Run, paths: FunctionPaths, known: Known | None) -> JobEndedError:
        """The error of the rank with these paths; `known`: what was last seen of its job."""
        ending = known.member.ending if known and known.member.ending else "unknown"
        return cls("\n".join(_lines(run, paths, known, ending)), run, ending)


def says_again(paths: FunctionPaths) -> bool:
    """Whether an attempt wants to go on later, whatever its ranks returned."""
    return said_again(paths.attempt_folder / "outcome")


def _lines(run: Run, paths: FunctionPaths, known: Known | None, ending: str) -> Iterator[str]:
    members = len(known.run.members) if known else 1
    who = f"function {paths.member} of {members}, rank" if members > 1 else "rank"
    yield f"job {paths.job_id} (run {run.id}, {who} {paths.task_id}) ended without a result: {ending}"
    last = known.member.attempts[-1] if known and known.member.attempts else None
    failed = failed_rank(run, paths.member, last) if last else None
    if failed:
        yield failure_words(failed.failure)
    if reason := (last.reason if last else None) or (known and (known.member.reason or known.run.reason)):
        yield reason
    again = f"castoff resubmit {run.id}" + (f" --member {paths.member}" if members > 1 else "")
    if says_again(paths):
        yield f"it stopped early and nobody starts it again by itself: `{again}` lets it go on"
    elif ending == "done":
        yield "its ranks exited with 0, but the function did not return: something in it calls exit()"
    elif ending != "unknown":
        yield f"`{again}` starts it again"
    script = run.script_log(paths.member)
    yield f"logs: {paths.stdout.parent}, and {script} of the script"
    yield from _excerpt(failed, paths.stdout if paths.stdout.exists() else script)


def _excerpt(failed: FailedRank | None, log: Path) -> Iterator[str]:
    """What a log says about it: the failed rank's, else this one's."""
    if failed and failed.log:
        log, lines = failed.log, failed.excerpt()
    else:
        try:
            with log.open("rb") as file:
                file.seek(tail_start(log, _LAST_LINES))
                lines = file.read().splitlines()
        except OSError:
            return
    if lines:
        yield f"from {log}:"
    for line in lines:
        yield "  " + line.decode(errors="replace")
