"""A real OpenPBS on the hosts of a cluster, wherever `qsub --version` finds one on PATH."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.cluster import HEAD
from tests.pbs.settings import POLL, QMGR

__all__ = [
    "CONFIGURATION",
    "HOMES",
    "QMGR",
    "installation",
    "make_home",
    "restart_server",
    "start_mom",
    "start_server",
]

HOMES = "/run/pbs"
"""Of each host PBS_HOME, by its name."""
CONFIGURATION = f"{HOMES}/{HEAD}.conf"
"""What the commands find their server by."""

# The folders are those that its pbs_postinstall makes; that also writes to /etc, which is this machine's.
_MAKE_HOME = f"""
exec_=$1 logs=$2 host=$(hostname)
home={HOMES}/$host
install -d -m 755 {HOMES} "$home" "$home"/aux
install -d -m 1777 "$home"/{{spool,undelivered}}
install -d -m 750 "$home"/server_priv{{,/accounting,/jobs,/users,/hooks,/hooks/tmp}} "$home"/sched_priv
install -d -m 751 "$home"/mom_priv{{,/jobs}}
install -d -m 750 "$home"/mom_priv/hooks{{,/tmp}}
install -d -m 700 "$home"/checkpoint
for daemon in server mom sched comm; do
  install -d -m 755 "$logs/$host-$daemon"
  ln -s "$logs/$host-$daemon" "$home/${{daemon}}_logs"
done
printf '$usecp *:/ /\n$min_check_poll {POLL}\n$max_check_poll {POLL}\n' >"$home"/mom_priv/config
printf 'PATH=/bin:/usr/bin\nLANG=C.UTF-8\n' >"$home"/pbs_environment
printf 'PBS_EXEC=%s\nPBS_HOME=%s\nPBS_SERVER={HEAD}\n' "$exec_" "$home" >"$home".conf
"""

# As its pbs_habitat does, which would also start the server once more.
_START_SERVER = f"""
export PBS_CONF_FILE={HOMES}/{HEAD}.conf
set -a
. "$PBS_CONF_FILE"
set +u
. "$PBS_EXEC"/libexec/pbs_db_env
set -u
PBS_DATA_SERVICE_USER=postgres PBS_DATA_SERVICE_PORT=15007
set +a
install -d -o postgres /run/postgresql
printf %s "$PBS_DATA_SERVICE_USER" >"$PBS_HOME"/server_priv/db_user
chmod 600 "$PBS_HOME"/server_priv/db_user
for name in dedicated holidays resource_group sched_config; do
  cp "$PBS_EXEC/etc/pbs_$name" "$PBS_HOME/sched_priv/${{name/%dedicated/dedicated_time}}"
done
sed -i 's/^resources: "/&ngpus, /' "$PBS_HOME"/sched_priv/sched_config
# On a busy machine it asks its database before that can answer, removes it and fails.
for attempt in 1 2 3 4 5; do
  if "$PBS_EXEC"/libexec/pbs_db_utility install_db; then break; fi
  [ "$attempt" -lt 5 ]
done
unset PBS_DATA_SERVICE_USER
"$PBS_EXEC"/sbin/pbs_comm
"$PBS_EXEC"/sbin/pbs_server -t create
"$PBS_EXEC"/sbin/pbs_sched
"""

_RESTART_SERVER = f"""
export PBS_CONF_FILE={CONFIGURATION}
. "$PBS_CONF_FILE"
kill "$(cat "$PBS_HOME"/sched_priv/sched.lock)" || true
"$PBS_EXEC"/sbin/pbs_server
until "$PBS_EXEC"/sbin/pbs_sched; do sleep 0.2; done
"""

_START_MOM = f'PBS_CONF_FILE={HOMES}/$(hostname).conf exec "$1"/sbin/pbs_mom'


def installation() -> Path | None:
    """PBS_EXEC of the OpenPBS on PATH, if there is one: Slurm brings a qsub, too."""
    found = shutil.which("qsub")
    if found is None:
        return None
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    return Path(found).resolve().parents[1] if "pbs_version" in said.stdout + said.stderr else None


def make_home(pbs_exec: Path, logs: Path) -> list[str]:
    """The command that makes a host ready for its daemons."""
    return ["bash", "-euc", _MAKE_HOME, "make-home", str(pbs_exec), str(logs)]


def start_server() -> list[str]:
    """The command that starts the head's daemons."""
    return ["bash", "-euc", _START_SERVER]


def start_mom(pbs_exec: Path) -> list[str]:
    """The command that starts a node's mom."""
    return ["bash", "-euc", _START_MOM, "start-mom", str(pbs_exec)]


def restart_server() -> list[str]:
    """The command that starts a server anew, with the jobs that it knew, and a scheduler for it."""
    return ["bash", "-euc", _RESTART_SERVER]
