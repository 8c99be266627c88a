"""The first failure of an attempt in words, the same in a launcher's message, a status, a list and logs.

A rendered script says it in the same words: `castoff_failure_words` in templates/machinery/ending.sh. This
module needs the standard library alone, because each start of a job's ranks pays for what it imports.
"""

from __future__ import annotations

from collections.abc import Mapping

HANG = "hang"
"""The `reason` of a failure where no rank failed, but all hung."""

OUT_OF_MEMORY = "out-of-memory"
"""The `reason` of a rank's failure where the kernel killed it for want of memory."""

ONCE = ("script", "driver")
"""The `program` of a failure that has no ranks: it runs once, so nothing else can fail after it."""


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
