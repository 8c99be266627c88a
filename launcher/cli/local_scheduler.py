"""`python -m castoff.launcher.cli.local_scheduler RUN_DIR`: the local scheduler's process.

A run may wait for others. The scheduler may not import the modules that know the states of runs, so this
module passes it a function that uses them.
"""

from __future__ import annotations

from functools import partial

from castoff.launcher.schedulers.local.daemon import main
from castoff.launcher.status.poller import Poller
from castoff.launcher.submission.dependencies import condition_holds

if __name__ == "__main__":
    main(lambda condition, run, member: partial(condition_holds, condition, run, Poller(), member=member))
