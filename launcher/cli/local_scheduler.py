"""`python -m launcher.cli.local_scheduler RUN_DIR`: the local scheduler's process.

It waits for other runs, and their states are known above it: so this hands it what tells them.
"""

from __future__ import annotations

from functools import partial

from launcher.runs.run import Run
from launcher.schedulers.local.daemon import main
from launcher.status.watch import Asking, condition_holds


def _waits(condition: str, run: Run) -> partial[bool | None]:
    return partial(condition_holds, condition, run, Asking())


if __name__ == "__main__":
    main(_waits)
