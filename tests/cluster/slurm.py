"""A real Slurm with accounting: Debian's packages, a head node and four hosts.

Tests use it as the fixture `slurm`, people as `python -m tests.cluster`. It starts in a few seconds, beside
any other Slurm of this machine, and leaves nothing behind: all of it lives in namespaces that end with the
process that started it (tests/cluster/hosts.py).
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from tests import threads
from tests.cluster import HEAD, NODES
from tests.cluster.base import Cluster, no_start_up_files
from tests.cluster.hosts import Hosts, memory_groups

__all__ = ["HEAD", "MAX_ARRAY_SIZE", "NODES", "PACKAGES", "SlurmCluster"]

MAX_ARRAY_SIZE = 8
"""An array's index must be smaller."""

OTHER_DEBIAN = os.environ.get("CASTOFF_TESTS_DEBIAN")
"""The root folder of another Debian, whose programs, Slurm among them, the hosts run in place of ours."""

_MEGABYTES = 2000
"""For each CPU."""

PACKAGES = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server",
    "ip": "iproute2",
}
"""The programs that it needs, and the Debian package of each."""


def _programs_of(root: str) -> dict[str, Path]:
    """The programs of the Debian in `root`, for the hosts: its /usr, and what its loader and links need."""
    if Path(sys.base_prefix).is_relative_to("/usr"):
        raise RuntimeError(f"this Python is in /usr ({sys.base_prefix}), which another Debian's hides")
    return {
        place: Path(root).resolve() / place[1:] for place in ("/usr", "/etc/alternatives", "/etc/ld.so.cache")
    }


_SETTINGS = {
    "slurm.conf": f"""\
ClusterName=castoff
SlurmctldHost={HEAD}
SlurmUser=root
SlurmdUser=root
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/%n
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/%n.pid
SlurmctldLogFile=LOGS/slurmctld.log
SlurmdLogFile=LOGS/%n.log
MailProg=/bin/true

# How long a job that is started again has to wait; 121 s by default.
AuthInfo=cred_expire=5
# And how long any job: by default it is looked at every 30 s.
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0
MaxArraySize={MAX_ARRAY_SIZE}
KillWait=5
# A step of a host that a test has lost may never end, and its node would be drained a minute later: in
# another test.
UnkillableStepTimeout=1800
ReturnToService=1
# salloc opens its shell on the first node, as most clusters have it.
LaunchParameters=use_interactive_step

# Not every machine lets us use control groups: only memory is limited by them, and only where it can be.
ProctrackType=proctrack/linuxproc
TaskPlugin=TASK_PLUGIN
MpiDefault=none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={HEAD}
AccountingStorageTRES=gres/gpu

SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU={_MEGABYTES}
GresTypes=gpu
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
# Each node may claim CPUs, 2 GB for each, and 4 GPUs, whatever this machine has.
SlurmdParameters=config_overrides
NodeName={",".join(NODES)} CPUs=CPU_COUNT RealMemory=MEMORY_SIZE Gres=gpu:a100:4 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES PriorityTier=1
PartitionName=urgent Nodes=ALL PriorityTier=10
FURTHER
""",
    # slurmd starts its plugin for them all the same, and ends where it cannot tell their version.
    "cgroup.conf": "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/run/cgroup\nConstrainRAMSpace=yes\n",
    "gres.conf": "Name=gpu Type=a100 File=/run/slurm/gpu[0-3]\n",
    "slurmdbd.conf": f"""\
DbdHost={HEAD}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageUser=root
LogFile=LOGS/slurmdbd.log
PidFile=/run/slurm/slurmdbd.pid
""",
    "mariadb.conf": """\
[mysqld]
user = root
datadir = /run/slurm/database
tmpdir = /run/slurm
socket = /run/mysqld/mysqld.sock
skip-networking
log-error = LOGS/mariadb.log
innodb_log_file_size = 4M
innodb_autoextend_increment = 1
innodb_buffer_pool_size = 16M
innodb_flush_log_at_trx_commit = 0
""",
}

# Stand-ins for what a university's login shells have: modules, one of which brings conda, and this knows
# an environment by its folder.
_MODULES = """\
module() { conda() { . "$2/bin/activate"; }; }
"""

_START_ACCOUNTING = """
mkdir -m 755 /run/munge /run/mysqld /run/slurm /run/slurm/state
ln -s mysqld /run/mariadbd # where newer clients of MariaDB look
for gpu in {0..3}; do mknod /run/slurm/gpu$gpu c 1 3; done # Slurm wants devices; these are nothing
head -c 128 /dev/urandom >/run/munge/munge.key
chmod 600 /run/munge/munge.key
munged --key-file=/run/munge/munge.key --seed-file=/run/munge/seed --log-file="$1/munged.log"
mariadb-install-db --defaults-file=/etc/slurm/mariadb.conf --auth-root-authentication-method=normal \
  --skip-test-db >"$1/mariadb-install-db.log" 2>&1
mariadbd --defaults-file=/etc/slurm/mariadb.conf >/dev/null 2>&1 &
"""


class SlurmCluster(Cluster):
    """Slurm on hosts of its own, from its making to `close`.

    What happens is in squeue at once, and in sacct up to 5 s later: slurmctld reports that often.
    """

    title = "Slurm"
    site = "slurm"
    sends = ("sbatch", "--parsable")
    outputs = "*.out"

    def __init__(self, folder: Path, held_by: int | None = None, cpus: int = 12, further: str = ""):
        """Start it, and wait until all nodes take jobs; `folder` gets its settings and logs.

        It lives as `Hosts` says of `held_by`; `cpus` is what each node claims to have, and
        `further` are lines for slurm.conf.

        Raises:
            OSError, RuntimeError: it cannot be started here.
        """
        settings, self.logs, profile = folder / "etc", folder / "logs", folder / "profile.d"
        for made in (settings, self.logs, profile):
            made.mkdir()
        (profile / "modules.sh").write_text(_MODULES)
        (profile / "threads.sh").write_text(threads.for_login_shells())
        values = {
            "LOGS": str(self.logs),
            "TASK_PLUGIN": "task/none" if memory_groups() is None else "task/cgroup",
            "FURTHER": further,
            "CPU_COUNT": str(cpus),
            "MEMORY_SIZE": str(cpus * _MEGABYTES),
        }
        for name, text in _SETTINGS.items():
            for key, value in values.items():
                text = text.replace(key, value)
            (settings / name).write_text(text)
            (settings / name).chmod(0o600)  # slurmdbd insists, for its own
        places = {"/etc/slurm": settings, "/etc/profile.d": profile, **no_start_up_files(folder)}
        self._libraries = folder / "lib"
        if OTHER_DEBIAN:
            places |= _programs_of(OTHER_DEBIAN)
            # MariaDB's client library of 2026 refuses the answers to slurmdbd's first query.
            self._libraries.mkdir()
            shutil.copy(f"/usr/lib/{platform.machine()}-linux-gnu/libmariadb.so.3", self._libraries)
        self.hosts = Hosts([HEAD, *NODES], places, held_by)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    @property
    def limits_memory(self) -> bool:
        """Whether a job that needs more memory than it has asked for ends out of memory."""
        return self.hosts.limits_memory

    def _start(self) -> None:
        self._must(HEAD, ["bash", "-euc", _START_ACCOUNTING, "start", self.logs])
        self._until(lambda: self._does(HEAD, ["test", "-S", "/run/mysqld/mysqld.sock"]))
        self._start_slurmdbd()
        self._until(lambda: self._does(HEAD, ["sacctmgr", "--immediate", "add", "cluster", "castoff"]))
        self._must(HEAD, ["slurmctld"])
        for node in NODES:
            self._start_slurmd(node)
        self.wait_for_nodes()

    def stop_controller(self) -> None:
        """Have slurmctld accept connections and answer none, until `continue_controller`."""
        self._signal(HEAD, "STOP", "slurmctld")

    def continue_controller(self) -> None:
        """Have slurmctld go on, with all that it was asked meanwhile."""
        self._signal(HEAD, "CONT", "slurmctld")
        self._until(lambda: self._does(HEAD, ["scontrol", "show", "config"]))

    @contextlib.contextmanager
    def without_controller(self) -> Iterator[None]:
        """No slurmctld while this lasts: connections are refused. Jobs run on, and are known to it after."""
        self._signal(HEAD, "TERM", "slurmctld")
        self._until(lambda: not self._does(HEAD, ["pgrep", "-F", "/run/slurm/slurmctld.pid"]))
        try:
            yield
        finally:
            self._must(HEAD, ["slurmctld"])
            self._until(lambda: self._does(HEAD, ["scontrol", "show", "config"]))
            self.wait_for_nodes()

    @contextlib.contextmanager
    def without_accounting(self) -> Iterator[None]:
        """No slurmdbd: sacct fails at once, and Slurm keeps what it has to tell for later."""
        self._signal(HEAD, "KILL", "slurmdbd")
        try:
            yield
        finally:
            self._start_slurmdbd()
            self._until(lambda: self._does(HEAD, ["sacct", "--jobs=1"]))

    @contextlib.contextmanager
    def slow_accounting(self) -> Iterator[None]:
        """A slurmdbd that does not answer while this lasts: sacct waits, and gives up after some 45 s."""
        self._signal(HEAD, "STOP", "slurmdbd")
        try:
            yield
        finally:
            self._signal(HEAD, "CONT", "slurmdbd")

    def drain(self, node: str) -> None:
        """Give a node no further jobs; what runs there goes on."""
        self._update(node, "drain")

    def set_down(self, node: str) -> None:
        """Have Slurm take a node for failed: its jobs are started again elsewhere, or end in NODE_FAIL."""
        self._update(node, "down")

    def kill_slurmd(self, node: str) -> None:
        """Kill a node's slurmd as a crash would; what it started lives on."""
        self._signal(node, "KILL", node)

    def resume(self) -> None:
        """Bring back every node that is gone, down or drained, and wait until all take jobs."""
        for node in NODES:
            self.hosts.up(node)
            if not self._does(node, ["bash", "-c", f'kill -0 "$(cat /run/slurm/{node}.pid)"']):
                self._start_slurmd(node)
            if {"DOWN", "DRAIN"} & self._state(node):
                self._update(node, "resume")
        self.wait_for_nodes()

    def wait_for_nodes(self) -> None:
        """Wait until every node can take jobs, whether or not it has some."""
        self._until(lambda: all(self._state(node) <= {"IDLE", "MIXED", "ALLOCATED"} for node in NODES))

    def _state(self, node: str) -> set[str]:
        shown = self._must(HEAD, ["scontrol", "--oneliner", "show", "node", node])
        (state,) = (word for word in shown.split() if word.startswith("State="))
        return set(state.removeprefix("State=").split("+"))

    def _update(self, node: str, state: str) -> None:
        words = [f"nodename={node}", f"state={state}", *(["reason=test"] if state != "resume" else [])]
        self._must(HEAD, ["scontrol", "update", *words])

    def _signal(self, host: str, name: str, daemon: str) -> None:
        self._must(host, ["bash", "-c", f'kill -{name} "$(cat /run/slurm/{daemon}.pid)"'])

    def _start_slurmdbd(self) -> None:
        self._must(HEAD, ["env", f"LD_LIBRARY_PATH={self._libraries}", "slurmdbd"])

    def _start_slurmd(self, node: str) -> None:
        self._must(node, ["bash", "-c", f"mkdir -p /run/slurm/{node} && exec slurmd -N {node}"])
