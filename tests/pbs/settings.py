"""What the PBS of the tests is like: the same for a real one and for its double."""

from __future__ import annotations

from tests.cluster import NODES

CPUS = 12
"""Of each node, whatever this machine has."""
GPUS = 4
DEFAULT_QUEUE = "workq"
DEBUG_NODES, DEBUG_WALLTIME = 2, "01:00:00"
"""The most that a job in the queue `debug` may have; each user has one there."""
MAX_ARRAY_SIZE = 10000
NODE_FAIL_REQUEUE = 5
"""Seconds from the loss of a job's first node to what becomes of the job; 310 by default."""
POLL = 1
"""How often nodes look at the walltime of their jobs, in seconds; 10 and more by default."""

QMGR = "\n".join(
    [
        "set server flatuid = true",
        "set server acl_roots = root@*",
        "set server job_history_enable = true",
        f"set server node_fail_requeue = {NODE_FAIL_REQUEUE}",
        "create resource filesystems type = string",
        "create resource ngpus type = long, flag = nh",
        f"create queue {DEFAULT_QUEUE} queue_type = execution, enabled = true, started = true",
        "create queue debug queue_type = execution, enabled = true, started = true",
        f"set queue debug resources_max.walltime = {DEBUG_WALLTIME}",
        f"set queue debug resources_max.nodect = {DEBUG_NODES}",
        "set queue debug max_queued = '[u:PBS_GENERIC=1]'",
        f"set server default_queue = {DEFAULT_QUEUE}",
        *(f"create node {node} resources_available.ncpus = {CPUS}" for node in NODES),
        *(f"set node {node} resources_available.ngpus = {GPUS}" for node in NODES),
        "set server scheduling = true",
    ]
)
"""The same in the words of a real one's qmgr."""
