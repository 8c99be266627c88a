"""The first failure of an attempt in words, the same in launchers' messages, states, lists and logs.

Scripts print the same words by `castoff_failure_words` in templates/machinery/ending.sh. This module imports
only the standard library, since every start of ranks imports it.
"""

from __future__ import annotations

from collections.abc import Mapping

HANG = "hang"
"""The `reason` of a failure in which no rank failed, but all hung."""

OUT_OF_MEMORY = "out-of-memory"
"""The `reason` of the failure of a rank that the kernel killed for lack of memory."""

ONCE = ("script", "driver")
"""The `program` of a failure outside of ranks. It runs only once, so nothing else can fail after it."""


def failure_words(failure: Mapping[str, object]) -> str:
    """A failure.json in one line: `rank 3 on n2 failed first: exit code 3`."""
    host, rank = failure["host"], failure.get("rank")
    if failure.get("reason") == HANG:
        return "the ranks hung" if rank is None else f"rank {rank} on {host} hung"
    signal = failure.get("signal")
    cause = f"killed by {signal}" if signal else f"exit code {failure['code']}"
    if failure.get("reason") == OUT_OF_MEMORY:
        cause += ", out of memory"
    if failure.get("detail"):
        cause += f" ({failure['detail']})"
    program = failure.get("program")
    if program in ONCE:
        return f"the {program} on {host} failed: {cause}"
    return f"{program or ('a rank' if rank is None else f'rank {rank}')} on {host} failed first: {cause}"
