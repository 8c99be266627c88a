"""castoff's own launcher: starts the ranks of a job on this one host, with no scheduler and no MPI.

`start_ranks` decides on each rank's cores and environment, starts all ranks and passes them to
`castoff.launcher.launchers.local.supervision`, which watches the ranks until they end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO

from castoff.launcher.config.quantities import cpulist
from castoff.launcher.errors import CastoffError
from castoff.launcher.launchers.local.agent import Agent, agent_of, modules_of
from castoff.launcher.launchers.local.processes import allowed_cores, on_cores
from castoff.launcher.launchers.local.streams import RankLog, open_logs
from castoff.launcher.launchers.local.supervision import Rank, Report, Supervision
from castoff.launcher.launchers.local.this_host import free_port, is_free, masked
from castoff.launcher.launchers.local.tracebacks import ErrorLines, SeenErrors
from castoff.launcher.ranks import is_stale
from castoff.launcher.ranks.visible import own_of, share_of, within
from castoff.launcher.text.words import counted

NOT_FOUND = 127
"""The exit code for a program that does not exist, as in shells."""
NOT_STARTED = 126
"""The exit code for a program that exists but cannot be started, as in shells."""


class Hosts(NamedTuple):
    """Several hosts, on each of which the user starts the same number of ranks."""

    nodes: int
    node_rank: int
    """This host's number, from 0. This host's first rank is this number times the number of ranks on each
    host.
    """
    master_addr: str
    """The address of host 0, where all ranks meet."""
    master_port: int
    """The rendezvous port on host 0, which must be free."""


class StartRequest(NamedTuple):
    """What to start on this host, and how."""

    command: Sequence[str]
    """The program and its arguments; every argument reaches the program unchanged."""
    ranks: int
    """The number of processes to start."""
    cores_per_rank: int | None
    """The number of cores of each rank; None: the cores that this process may use are divided evenly."""
    devices_per_rank: int | None
    """The number of devices of each rank. 1: each rank's CASTOFF_DEVICE is its local rank, or 0 if the rank
    sees only one device. More: each rank sees only its own devices, if castoff knows this host's GPUs or a
    mask of devices.
    """
    environment: Mapping[str, str]
    """The ranks' environment, without the variables that identify each rank."""
    job_id: str
    """The id from which the rendezvous port is derived."""
    workdir: Path | None = None
    """The folder in which the ranks start; None: this process's working directory."""
    log_dir: Path | None = None
    """The folder for the ranks' logs, `rank-00000.log` …, which is created with mode 0700; existing logs are
    overwritten. None: no logs.
    """
    failure_file: Path | None = None
    """The file that records the first rank that failed; an existing record is kept."""
    hosts: Hosts | None = None
    """The hosts; None: only this host, on which castoff finds a free port."""
    inherited: Sequence[int] = ()
    """Open files that each rank inherits, such as the lock of its run."""
    preload: Sequence[str] | None = None
    """Modules that one process imports for all ranks. None: torch, if there are several ranks and the command
    is a script that imports torch.
    """
    agent_for: int | None = None
    """The id of the process for which the preloading process serves all starts; None: the preloading process
    serves only this start.
    """
    walltime: int | None = None
    """Seconds after which the ranks are ended by TERM, and by KILL if TERM does not end them."""
    driver: bool = False
    """Whether the program is a driver and not a rank: it starts its own workers, and may use all of this
    host.
    """

    @property
    def first_rank(self) -> int:
        """The lowest rank of this host."""
        return 0 if self.hosts is None else self.hosts.node_rank * self.ranks

    @property
    def world_size(self) -> int:
        """The number of ranks on all hosts together."""
        return self.ranks if self.hosts is None else self.hosts.nodes * self.ranks


class CannotStart(CastoffError):
    """The program cannot be started, so no rank runs."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code
        """`NOT_FOUND` or `NOT_STARTED`."""


def start_ranks(request: StartRequest, *, output: BinaryIO, messages: TextIO) -> int:
    """Start the ranks, write their output to `output`, and return when all of them have ended.

    Returns 0 if every rank succeeded; otherwise the exit code of the rank that was seen to fail first, or 128
    + N if signal N killed that rank. One failure ends all ranks. If this process gets SIGINT, SIGTERM or
    SIGHUP, it sends SIGTERM to every rank's own process (not to the rank's children): if ranks die of the
    SIGTERM, the result is 128 + the number of the first signal; if all ranks then end with code 0, the result
    is 0; a second signal kills the ranks. Processes that the ranks leave behind are ended too: on Linux,
    these are all descendants that this process did not have before. So call this function in the main thread
    of a process that starts no other processes meanwhile.

    Raises:
        CastoffError: nothing was started: the request is invalid, a log cannot be written, or no port is
            free; `CannotStart`, with a shell's exit code, if the program cannot be started.
    """
    several = 0 if request.driver or request.devices_per_rank == 1 else request.devices_per_rank or 0
    if several:
        mask = masked(request.environment)
        request = request._replace(environment={**request.environment, **mask})
    _check(request)
    cores = divide_cores(allowed_cores(), request.ranks, request.cores_per_rank)
    port = _meeting_port(request)
    with contextlib.ExitStack() as stack:
        logs: list[RankLog] = []
        if request.log_dir is not None:
            logs = open_logs(request.log_dir, request.ranks, stack, request.first_rank)
        host = socket.gethostname()
        report = Report(host, output, messages, request.failure_file, request.log_dir)
        try:
            supervision = Supervision(report, stack)
        except OSError as error:
            raise _explained(error, request, 0, request.environment) from error
        seen = SeenErrors()
        environments = [
            rank_environment(request, number, port, len(cores[0])) | supervision.orphan_reaper.environment
            for number in range(request.ranks)
        ]
        if modules := modules_of(request.command, request.ranks, request.workdir, request.preload):
            agent = _agent(request, modules, environments[0])
            stack.callback(agent.end)
            supervision.add_agent(agent.pid)
            request = request._replace(command=agent.client)
        for number, environment in enumerate(environments):
            log = logs[number] if logs else None
            prefix = b"" if request.driver else b"[%d] " % (request.first_rank + number)
            lines = ErrorLines(prefix, terminal=output.isatty(), seen=seen)
            supervision.add(_spawn(request, number, environment, cores[number], log, lines))
        if not request.driver:
            supervision.watch_ranks(request.world_size)
        supervision.report(_announcement(request, host, cores, port))
        if several and not share_of(request.environment, 0, 1):
            no_gpus = "no GPU of NVIDIA or AMD is known on this host, and no mask names devices"
            supervision.report(f"devices_per_rank={several}: {no_gpus}, so each rank sees all that there are")
        if request.walltime is not None:
            supervision.end_after(request.walltime)
        return supervision.run()


def _meeting_port(request: StartRequest) -> int:
    hosts = request.hosts
    if hosts is None:
        return free_port(request.job_id)
    if hosts.node_rank == 0 and not is_free(hosts.master_port):
        raise CastoffError(
            f"port {hosts.master_port} is taken on this host (`ss -tlnp` shows by whom); give all hosts "
            "another one"
        )
    return hosts.master_port


def rank_environment(request: StartRequest, local: int, port: int, cores: int) -> dict[str, str]:
    """Return the whole environment of this host's rank `local`. `cores`: the number of the rank's cores."""
    rank = request.first_rank + local
    environment = {name: value for name, value in request.environment.items() if not is_stale(name)}
    environment.setdefault("PYTHONUNBUFFERED", "1")
    if request.driver:
        return environment | _of_driver(request, port, cores)
    environment.update(
        RANK=str(rank),
        LOCAL_RANK=str(local),
        WORLD_SIZE=str(request.world_size),
        LOCAL_WORLD_SIZE=str(request.ranks),
        NODE_RANK="0" if request.hosts is None else str(request.hosts.node_rank),
        MASTER_ADDR="127.0.0.1" if request.hosts is None else request.hosts.master_addr,
        MASTER_PORT=str(port),
        CASTOFF_LAUNCHER="local",
        CASTOFF_RANK=f"{rank}/{request.world_size}",
    )
    environment.setdefault("OMP_NUM_THREADS", str(cores))
    if request.devices_per_rank == 1:
        environment |= own_of(environment, local)
    elif request.devices_per_rank:
        environment |= share_of(environment, local, request.devices_per_rank)
    return environment


def _of_driver(request: StartRequest, port: int, cores: int) -> dict[str, str]:
    """Return the variables that tell a driver that this host is its only host."""
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "CASTOFF_HOSTS": socket.gethostname(),
        "CASTOFF_NODES": "1",
        "CASTOFF_CORES_PER_NODE": str(cores),
        "CASTOFF_DEVICES_PER_NODE": str(request.devices_per_rank or 0),
    }


def divide_cores(allowed: list[int], ranks: int, per_rank: int | None) -> list[list[int]]:
    """Return the cores of each rank: consecutive blocks of `allowed`; if there are fewer cores than ranks, in
    turn.

    All ranks get the same number of cores, since faster ranks would wait for the slowest; remaining cores
    stay idle.
    """
    width = min(per_rank or max(1, len(allowed) // ranks), len(allowed))
    return [[allowed[(rank * width + core) % len(allowed)] for core in range(width)] for rank in range(ranks)]


def _check(request: StartRequest) -> None:
    if not request.command or not request.command[0]:
        raise CastoffError("there is no program to start: the command is empty")
    for name in ("ranks", "cores_per_rank"):
        value = getattr(request, name)
        if value is not None and value < 1:
            raise CastoffError(f"{name}={value}: must be 1 or more")
    if request.devices_per_rank == 1:
        within(request.environment, request.ranks - 1)  # checks the last rank before any is started
    elif request.devices_per_rank and not request.driver:
        share_of(request.environment, request.ranks - 1, request.devices_per_rank)
    workdir = request.workdir
    if workdir is not None and not (workdir.is_dir() and os.access(workdir, os.X_OK)):
        problem = "cannot be entered" if workdir.is_dir() else "is not a folder on this host"
        raise CannotStart(f"workdir={workdir}: it {problem}; create it or name another", NOT_STARTED)


def _agent(request: StartRequest, modules: Sequence[str], environment: Mapping[str, str]) -> Agent:
    by_default, owner = request.preload is None, request.agent_for
    try:
        return agent_of(
            request.command, modules, request.workdir, environment, by_default=by_default, owner=owner
        )
    except (OSError, ValueError) as error:
        raise _explained(error, request, 0, environment) from error


def _spawn(
    request: StartRequest,
    number: int,
    environment: dict[str, str],
    cores: Sequence[int],
    log: RankLog | None,
    lines: ErrorLines,
) -> Rank:
    reading = -1
    try:
        reading, writing = os.pipe()
        with os.fdopen(writing, "wb") as output, on_cores(cores):
            process = subprocess.Popen(
                list(request.command),
                # Several ranks cannot share a terminal's lines; a single one may ask questions.
                stdin=None if request.ranks == 1 else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=request.workdir,
                env=environment,
                start_new_session=True,
                pass_fds=request.inherited,
            )
    except (OSError, ValueError) as error:
        if reading >= 0:
            os.close(reading)
        raise _explained(error, request, number, environment) from error
    return Rank(request.first_rank + number, process, reading, log, lines)


_FIXES = {
    errno.EAGAIN: "start fewer ranks, or raise `ulimit -u`",
    errno.EMFILE: "start fewer ranks, or raise `ulimit -n` (a rank needs 3)",
    **dict.fromkeys((errno.ENOMEM, errno.ENFILE), "start fewer ranks"),
    errno.EACCES: "is it a folder, or does it lack `chmod +x`?",
    errno.ENOEXEC: "a script needs a first line such as `#!/bin/sh`; a program must suit this machine",
    errno.E2BIG: "the arguments and the environment together are too long",
}


_INTERPRETERS = {".py": "python", ".sh": "bash"}


def _interpreted(script: str) -> str:
    """The fix for a script that cannot be started by itself; empty for a program that is none."""
    interpreter = _INTERPRETERS.get(script[-3:])
    return f"a script follows its interpreter: {interpreter} {script}" if interpreter else ""


def _explained(
    error: OSError | ValueError, request: StartRequest, rank: int, environment: Mapping[str, str]
) -> CannotStart:
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOENT, errno.ENOTDIR):
        return CannotStart(_not_found(request, environment), NOT_FOUND)
    reason = f"{error} in a word of it" if number is None else os.strerror(number)
    fix = f"; {_FIXES[number]}" if number in _FIXES else ""
    program = request.command[0]
    if number in (errno.EACCES, errno.ENOEXEC) and (of_script := _interpreted(program)):
        fix = f"; {of_script}"
    return CannotStart(
        f"cannot start rank {rank} of {request.ranks}: {program!r}: {reason}{fix}", NOT_STARTED
    )


def _not_found(request: StartRequest, environment: Mapping[str, str]) -> str:
    program = request.command[0]
    path = (request.workdir or Path()) / program
    if os.sep in program:
        if path.is_file():
            return f"cannot start {program!r}: the interpreter its first line names does not exist"
        return f"cannot find the program {program!r} (looked at {path.absolute()}); correct its path"
    searched = os.pathsep.join(os.get_exec_path(environment))
    fix = "add its folder to PATH or write its whole path"
    name, equals, _ = program.partition("=")
    is_startable = os.access(path, os.X_OK) and not program.endswith(".py")
    if path.is_file() and not is_startable and (of_script := _interpreted(program)):
        fix = of_script
    elif program.endswith(".py"):
        looked = f"looked at {path.absolute()}, and on PATH"
        return f"cannot find the program {program!r} ({looked}); correct its path"
    elif path.is_file():
        fix += f"; if you mean the one in the working folder, write ./{program}"
    elif equals and name.isidentifier():
        fix = f"a variable goes before castoff, or is set by --set env.{program}"
    return f"cannot find the program {program!r}; {fix} (PATH is {searched})"


def _announcement(request: StartRequest, host: str, cores: list[list[int]], port: int) -> str:
    cores_each = len(cores[0])
    lists = [cpulist(sorted(rank_cores)) for rank_cores in cores]
    if len(lists) > 8:
        lists = [*lists[:3], "…", lists[-1]]
    shares = f" ({' | '.join(lists)})"
    distinct = len({core for rank_cores in cores for core in rank_cores})
    if distinct < request.ranks * cores_each:
        shares += f", shared: {distinct} in all"
    parts = [
        f"{_started(request)} on {host}",
        f"{counted(cores_each, 'core')}{' each' if request.ranks > 1 else ''}{shares}",
    ]
    threads = request.environment.get("OMP_NUM_THREADS")
    if threads is not None or not request.driver:
        parts.append(
            f"OMP_NUM_THREADS={cores_each}" if threads is None else f"OMP_NUM_THREADS={threads} (given)"
        )
    parts.append(
        f"port {port}" if request.hosts is None else f"meeting at {request.hosts.master_addr}:{port}"
    )
    return ", ".join(parts)


def _started(request: StartRequest) -> str:
    if request.driver:
        return "the program, which starts its own workers,"
    return f"{counted(request.ranks, 'rank')}{_among(request)}"


def _among(request: StartRequest) -> str:
    """Return a text that says which ranks this host has, if other hosts have ranks, too."""
    hosts, first = request.hosts, request.first_rank
    if hosts is None:
        return ""
    last = first + request.ranks - 1
    which = f"{first}" if first == last else f"{first}-{last}"
    return f" ({which} of {request.world_size}: host {hosts.node_rank} of {hosts.nodes})"
