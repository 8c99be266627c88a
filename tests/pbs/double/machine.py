"""What the double says of itself: its queues, its server and its nodes, as far as OpenPBS says the same."""

from __future__ import annotations

from collections.abc import Mapping

from tests.pbs.double.wire import SERVER, VERSION
from tests.pbs.settings import (
    CPUS,
    DEBUG_NODES,
    DEBUG_WALLTIME,
    DEFAULT_QUEUE,
    GPUS,
    MAX_ARRAY_SIZE,
    NODE_FAIL_REQUEUE,
)

_MEMORY = 24684096
"""KiB of each node."""

# Lines break where OpenPBS breaks them.
_COUNTS = (
    "    total_jobs = 0\n    state_count = Transit:0 Queued:0 Held:0 Waiting:0 Running:0 Exiting:0 Begun"
    "\n\t:0 \n"
)


def queues() -> str:
    """qstat -Q -f."""
    head, tail = f"    queue_type = Execution\n{_COUNTS}", "    enabled = True\n    started = True\n\n"
    limits = f"    max_queued = [u:PBS_GENERIC=1]\n    resources_max.nodect = {DEBUG_NODES}\n"
    limits += f"    resources_max.walltime = {DEBUG_WALLTIME}\n"
    return f"Queue: {DEFAULT_QUEUE}\n{head}{tail}Queue: debug\n{head}{limits}{tail}"


def server() -> str:
    """qstat -B -f."""
    return (
        f"Server: {SERVER}\n    server_state = Active\n    server_host = {SERVER}\n    scheduling = True\n"
        f"{_COUNTS}"
        f"    acl_roots = root@*\n    default_queue = {DEFAULT_QUEUE}\n    query_other_jobs = True\n"
        "    resources_default.ncpus = 1\n    default_chunk.ncpus = 1\n    flatuid = True\n"
        f"    node_fail_requeue = {NODE_FAIL_REQUEUE}\n    max_array_size = {MAX_ARRAY_SIZE}\n"
        f"    pbs_version = {VERSION}\n    job_history_enable = True\n\n"
    )


def nodes(states: Mapping[str, str]) -> str:
    """pbsnodes -a."""
    return "".join(
        f"{node}\n     Mom = {node}\n     ntype = PBS\n     state = {state}\n"
        f"     resources_available.arch = linux\n     resources_available.host = {node}\n"
        f"     resources_available.mem = {_MEMORY}kb\n     resources_available.ncpus = {CPUS}\n"
        f"     resources_available.ngpus = {GPUS}\n     resources_available.vnode = {node}\n"
        "     resv_enable = True\n     sharing = default_shared\n\n"
        for node, state in states.items()
    )


def lost(states: Mapping[str, str]) -> str:
    """pbsnodes -l."""
    return "".join(f"{node:20} {state} \n" for node, state in states.items() if state == "down")
