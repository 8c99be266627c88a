"""How long tests wait for what must come.

Only a test that fails waits that long, so it is far more than a busy machine takes; no test may depend on how
fast the machine is. `timeout` in pyproject.toml, which ends a whole test, is longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

SECONDS = 600.0


def until(holds: Callable[[], Found | None], what: str = "it never came true") -> Found:
    """What `holds` gives as soon as it is something; a failure that says `what` after `SECONDS`.

    Between two questions passes three times what the last one took: a `castoff status`, or a look at all
    processes, asked without a pause, takes a core from the tests beside it.
    """
    give_up = time.monotonic() + SECONDS
    while True:
        asked = time.monotonic()
        if found := holds():
            return found
        answered = time.monotonic()
        assert answered < give_up, what
        time.sleep(max(0.02, 3 * (answered - asked)))
