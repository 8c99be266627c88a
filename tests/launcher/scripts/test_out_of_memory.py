"""A rank that is killed because memory has run out: in a real control group, by two launchers."""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.hosts import memory_groups
from tests.patience import until

from .conftest import Benches

GREEDY = "bytearray(10**9).count(1)"
FIRST_OF_ALL = "echo 1000 >/proc/self/oom_score_adj; exec {} -c '{}'"
"""A rank that the kernel takes before all others, be they as large."""


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """A control group whose processes have 200 MB together."""
    groups = memory_groups()
    if groups is None:
        pytest.skip("only root can make the control groups that limit memory")
    group = groups / f"castoff-{uuid.uuid4().hex}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text("200M")
    yield group
    until(lambda: not (group / "cgroup.procs").read_text(), "the end of all in the group")
    group.rmdir()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["local", "srun"])
def test_it_is_told_apart_from_other_kills(kind: str, bench: Benches, little_memory: Path) -> None:
    here = bench(kind)
    greedy = FIRST_OF_ALL.format(sys.executable, GREEDY)
    once_each = f'case "$RANK$CASTOFF_ATTEMPT" in 10) {greedy} ;; 11) kill -KILL $$ ;; esac; exec sleep 1000'
    join = [f"echo $$ >{little_memory}/cgroup.procs"]
    again = {"max": 1, "progress": "none"}
    ended = here.run(ranks_per_node=2, command=["sh", "-c", once_each], setup=join, restart=again)
    first, second = (ended.record("failure", attempt) for attempt in ("0.0", "0.1"))
    assert (first["rank"], first["signal"], first.get("reason")) == (1, "SIGKILL", "out-of-memory"), (
        ended.output
    )
    assert (second["rank"], second["signal"], second.get("reason")) == (1, "SIGKILL", None), ended.output
    words = "attempt 0 failed: rank 1 on .* failed first: killed by SIGKILL, out of memory; attempt 1 begins"
    assert re.search(words, ended.output), ended.output
    assert "out of memory" not in ended.output.partition("attempt 1 begins")[2]
