"""A real Slurm with accounting: Debian's packages, a head node and four hosts.

    python -m tests.cluster.slurm            a shell on its head node
    python -m tests.cluster.slurm sinfo      a command there

It starts in a few seconds, beside any other Slurm of this machine, and leaves nothing behind: all of it
lives in namespaces that end with the process that started it (tests/cluster/hosts.py).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.cluster.hosts import Hosts, why_no_hosts

HEAD = "head"
NODES = ("n1", "n2", "n3", "n4")

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
KillWait=5
ReturnToService=2
# salloc opens its shell on the first node, as most clusters have it.
LaunchParameters=use_interactive_step

# Nothing here asks for control groups, which not every machine lets us use.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/linux
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={HEAD}

SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
# Each node may claim 12 CPUs, whatever this machine has.
SlurmdParameters=config_overrides
NodeName={",".join(NODES)} CPUs=12 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES PriorityTier=1
PartitionName=urgent Nodes=ALL PriorityTier=10
""",
    # slurmd starts its plugin for them all the same, and ends where it cannot tell their version.
    "cgroup.conf": "CgroupPlugin=cgroup/v1\n",
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
socket = /run/mysqld/mysqld.sock
skip-networking
log-error = LOGS/mariadb.log
innodb_log_file_size = 4M
innodb_autoextend_increment = 1
innodb_buffer_pool_size = 16M
innodb_flush_log_at_trx_commit = 0
""",
}

_START_ACCOUNTING = """
mkdir -m 755 /run/munge /run/mysqld /run/slurm /run/slurm/state
head -c 128 /dev/urandom >/run/munge/munge.key
chmod 600 /run/munge/munge.key
munged --key-file=/run/munge/munge.key --seed-file=/run/munge/seed --log-file="$1/munged.log"
mariadb-install-db --defaults-file=/etc/slurm/mariadb.conf --auth-root-authentication-method=normal \
  --skip-test-db >"$1/mariadb-install-db.log" 2>&1
mariadbd --defaults-file=/etc/slurm/mariadb.conf >/dev/null 2>&1 &
"""
_SECONDS = 60.0
"""How long anything here may take on a machine that is busy with other things."""


class SlurmCluster:
    """Slurm on hosts of its own, from its making to `close`."""

    def __init__(self, folder: Path):
        """Start it, and wait until all nodes take jobs; `folder` gets its settings and logs.

        Raises:
            OSError, RuntimeError: it cannot be started here.
        """
        settings, self.logs = folder / "etc", folder / "logs"
        for made in (settings, self.logs):
            made.mkdir()
        for name, text in _SETTINGS.items():
            (settings / name).write_text(text.replace("LOGS", str(self.logs)))
            (settings / name).chmod(0o600)  # slurmdbd insists, for its own
        self.hosts = Hosts([HEAD, *NODES], settings)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        self._must(HEAD, ["bash", "-euc", _START_ACCOUNTING, "start", self.logs])
        self._until(lambda: self._does(HEAD, ["test", "-S", "/run/mysqld/mysqld.sock"]))
        self._must(HEAD, ["slurmdbd"])
        self._until(lambda: self._does(HEAD, ["sacctmgr", "--immediate", "add", "cluster", "castoff"]))
        self._must(HEAD, ["slurmctld"])
        for node in NODES:
            self._start_slurmd(node)
        self.wait_for_nodes()

    def run(
        self, host: str, command: Sequence[str | Path], **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host, as `Hosts.run` does."""
        return self.hosts.run(host, command, **options)

    def popen(self, host: str, command: Sequence[str | Path], **options: Any) -> subprocess.Popen[str]:
        """Start a command on a host, as `Hosts.popen` does."""
        return self.hosts.popen(host, command, **options)

    def down(self, node: str) -> None:
        """Take a node's network away."""
        self.hosts.down(node)

    def kill_slurmd(self, node: str) -> None:
        """Kill a node's slurmd as a crash would; what it started lives on."""
        self._must(node, ["bash", "-c", f'kill -KILL "$(cat /run/slurm/{node}.pid)"'])

    def resume(self) -> None:
        """Bring back every node that is gone, and wait until all take jobs."""
        for node in NODES:
            self.hosts.up(node)
            if not self._does(node, ["bash", "-c", f'kill -0 "$(cat /run/slurm/{node}.pid)"']):
                self._start_slurmd(node)
        self.wait_for_nodes()

    def wait_for_nodes(self) -> None:
        """Wait until every node can take jobs, whether or not it has some."""

        def states() -> set[str]:
            return set(self._must(HEAD, ["sinfo", "--noheader", "--Node", "--format", "%T"]).split())

        self._until(lambda: states() <= {"idle", "mixed", "allocated"})

    def _start_slurmd(self, node: str) -> None:
        self._must(node, ["bash", "-c", f"mkdir -p /run/slurm/{node} && exec slurmd -N {node}"])

    def close(self) -> None:
        """End it and everything that runs on it."""
        self.hosts.close()

    def _must(self, host: str, command: Sequence[str | Path]) -> str:
        answer = self.run(host, command, cwd="/", env=_bare_environment(), timeout=_SECONDS)
        if answer.returncode:
            said = answer.stderr.strip() or answer.stdout.strip()
            raise RuntimeError(f"{shlex.join(answer.args)} on {host}: {said}; logs are in {self.logs}")
        return answer.stdout

    def _does(self, host: str, command: Sequence[str | Path]) -> bool:
        return self.run(host, command, cwd="/", env=_bare_environment(), timeout=_SECONDS).returncode == 0

    def _until(self, holds: Callable[[], bool]) -> None:
        give_up = time.monotonic() + _SECONDS
        while not holds():
            if time.monotonic() > give_up:
                raise RuntimeError(f"Slurm does not get ready; its logs are in {self.logs}")
            time.sleep(0.05)


def _bare_environment() -> dict[str, str]:
    """What the daemons see: what they have in theirs, jobs have too."""
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}


def main() -> int:
    """Start a cluster, run a shell or a command on its head node, end the cluster."""
    if why := why_no_hosts():
        sys.exit(why)
    if missing := [package for program, package in PACKAGES.items() if shutil.which(program) is None]:
        sys.exit(f"this needs Debian packages: apt-get install {' '.join(missing)}")
    command = sys.argv[1:] or [os.environ.get("SHELL", "/bin/bash")]
    with tempfile.TemporaryDirectory(prefix="castoff-slurm-") as folder:
        cluster = SlurmCluster(Path(folder))
        try:
            print(
                f"Slurm runs, on the nodes {' '.join(NODES)}; its logs are in {cluster.logs}", file=sys.stderr
            )
            print(
                f"on a node, from anywhere: {shlex.join(cluster.hosts.enter(NODES[0]))} bash", file=sys.stderr
            )
            return subprocess.run([*cluster.hosts.enter(HEAD), *command], check=False).returncode
        finally:
            cluster.close()


if __name__ == "__main__":
    sys.exit(main())
