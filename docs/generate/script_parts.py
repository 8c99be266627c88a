"""The parts of the machinery, and the functions that a scheduler's or launcher's part defines: for docs.

docs/reference/templates.md shows these tables; tests compare them with the files.
"""

from __future__ import annotations

from collections.abc import Iterable

from castoff.launcher.launchers.commands import LAUNCHERS
from castoff.launcher.planning.containers import RUNTIMES
from castoff.launcher.schedulers.registry import NAMES


def _in(folder: str, names: Iterable[str]) -> str:
    return ", ".join(f"{folder}/{name}" for name in names)


PARTS = {
    "begin": "`castoff_begin` finds or makes the run directory, exports its paths, records start and ending; "
    "`castoff_write` writes the programs of the nodes",
    "parameters": "`castoff_parameters` takes a member's row of the table, and writes its JSON file",
    _in("schedulers", NAMES): "what a scheduler reports to a job, and how the job is requeued",
    "stopping": "`castoff_listen` traps TERM, INT, HUP and USR2; `castoff_terminate` ends the ranks; "
    "`castoff_wait` waits for the launcher, asks for a stop before the walltime, and calls "
    "`castoff_watch_ranks`",
    "setup": "`castoff_setup` and `castoff_setup_over`: if a line between them ends the job, it is reported; "
    "`castoff_snapshot`",
    "teardown": "`castoff_at_end` takes shell lines; `castoff_tear_down` runs them at the end",
    "fence": "`castoff_check_fence` ends this attempt if another has begun; `castoff_await_fences`, with "
    "`attempts`, waits until ranks of earlier ones have ended",
    "earlier": "`castoff_earlier` checks the links to runs whose directories the job uses",
    "environment": "`castoff_clear_stale_env` unsets what a launcher set for a parent's ranks; "
    "`castoff_unset_user_functions`; `castoff_inherit`; `castoff_need`, for `env_from`; "
    "`castoff_for_program`, for LD_PRELOAD and its like",
    "container": "`castoff_container` decides which folders are inside; `container.sh` and `inside.sh`",
    _in("runtimes", RUNTIMES): "how a container runtime is called",
    "stage": "`castoff_stage` has each node copy files, checks that all did, and cleans up; `stage.sh`",
    "hosts": "`castoff_find_hosts` runs `host.sh` on each host, which ends what earlier attempts left and "
    "checks the host; `castoff_ask` runs a program on each",
    "hang": "`castoff_watch_hang` ends ranks that hang, after `stacks.sh` has collected their stacks",
    "progress": "`castoff_judge_progress` counts the attempts in a row that made no progress",
    "signal": "in ranks' programs, or with castoff's own launcher: `castoff_deliver` sends the job's signal",
    "restart": "`castoff_restart` decides whether another attempt begins in the same job, and begins it",
    "notify": "`castoff_notify_end` sends each message about the end of a run once",
    "rendezvous": "`castoff_rendezvous` checks the hosts and exports MASTER_ADDR and MASTER_PORT; "
    "`castoff_export_hosts`, for a driver",
    "preload": "`castoff_preload` starts a process on each node that imports modules, and `rank.sh` runs "
    "ranks as copies of it; `castoff_end_agents`",
    _in("launchers", LAUNCHERS): "what only the job can pass to its launcher, and a rank's number",
    "start": "`castoff_start` starts the ranks, follows the first log and reports the first failure; "
    "`castoff_watch_ranks` looks after them each second",
    "script": "`castoff_run_script` runs the job's own script",
    "unstarted": "`castoff_check_start`, on several nodes, reports ranks that have not started, and ends the "
    "job after `castoff_start_timeout` seconds",
    "rank": "`rank.sh`, around each rank, or around torchrun on each node; `torchrun_rank.sh`, around "
    "torchrun's ranks",
    "program": "in both of these: starts the program by `castoff_exec`, passes signals on, leaves its exit "
    "code in `castoff_code`; `castoff_record_failure`",
    "use": "in `rank.sh` and around batch scripts: `castoff_record_use` starts `use.py`, which records "
    "[what the job uses](../how-to/use.md)",
    "device": "in `rank.sh`: CASTOFF_DEVICE, counted among the devices that the rank sees",
    "ending": "`castoff_end` reads how the job ended, requeues it or continues a chain if necessary, and "
    "sets the exit code",
    "together": "`castoff_dispatch` runs the members that share the job, each by the same script in a slot",
    "succession": "for such a job that loses hosts, or that another start or job takes over from",
}
"""The files that scripts are made of, in their order, and what each does."""

OF_A_SCHEDULER = {
    "castoff_scheduler_locate": "always: sets `castoff_job`, `castoff_index`, `castoff_submit_dir`, "
    "`castoff_restarts`, and `castoff_cluster`, which may be empty",
    "castoff_scheduler_hosts": "except with `here`: prints the job's hosts, one per line",
    "castoff_scheduler_clear_env": "except on `local` without `mpiexec`: unsets variables of other "
    "schedulers, which would mislead the launcher",
    "castoff_scheduler_end_time": "with `deadline`: prints when the job will be ended, in seconds since 1970",
    "castoff_scheduler_end_now": "with `deadline`, if that may change: prints it, asked anew",
    "castoff_scheduler_requeue": "with `requeue` or `copy`: requeues the job, or submits a copy of "
    "it; fails if neither is possible",
    "castoff_scheduler_kill_delay": "with `teardown`: prints the seconds between TERM and KILL",
    "castoff_scheduler_begin": "optional, before anything is recorded: ends a job that must not begin, "
    "clears what an outer step left",
    "castoff_scheduler_choose_log": "optional: called when the attempt has its folders",
    "castoff_scheduler_submit_next": "optional, after the start is recorded: submits the job that continues "
    "this one",
    "castoff_scheduler_has_lost_host": "optional, with `chain`: whether the script's host is lost",
    "castoff_scheduler_listen": "optional: traps further signals",
    "castoff_scheduler_ended_rank": "optional: whether the walltime ended the rank that failed first",
    "castoff_scheduler_enforce_walltime": "optional, while the ranks run: ends them at the walltime; leaves "
    "its process in `castoff_enforcer`",
    "castoff_scheduler_guard": "optional, with `spares`, before the ranks start: has other hosts end or "
    "requeue a job whose script is lost",
    "castoff_scheduler_find_launcher": "optional: chooses the mpiexec",
    "castoff_scheduler_finish": "optional, as the script ends: called before the ending is recorded",
}
"""The functions that a scheduler's file defines, when, and what each does."""

OF_A_LAUNCHER = {
    "castoff_launcher_advise": "with `nodes`: prints what to check if ranks do not start",
    "castoff_launcher_each": "with `hosts`; `FILE COUNT`: sets `castoff_flags` for one process on each host "
    "of a file, beside what runs there",
    "castoff_launcher_name_hosts": "optional; `FILE PROCESSES NODES`: writes a host file with PROCESSES "
    "on each of the first NODES and one fewer on the others; sets `castoff_flags`",
    "castoff_launcher_beside": "optional, before a restart: sets flags in case something of the last attempt "
    "still runs",
    "castoff_launcher_place": "optional, before the ranks start: a host file, or variables that the launcher "
    "follows",
    "castoff_launcher_export": "optional, last before the ranks start: names variables that the launcher "
    "passes on",
    "castoff_launcher_cancel": "optional: ends ranks that ignore TERM, where KILL would leave them running",
    "castoff_launcher_has_ended": "optional, with `attempts` and `nodes`: whether no rank is left",
    "castoff_launcher_tries_again": "optional: whether to start it again, if the scheduler was away",
    "castoff_launcher_host_of_rank_0": "optional: prints the host, if it is not the first one",
}
"""The functions that a launcher's file defines, when, and what each does."""
