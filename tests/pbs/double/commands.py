"""The double's commands but qsub, by their names."""

from __future__ import annotations

import getopt
import os
import pwd
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tests.pbs.double import machine, showing
from tests.pbs.double.qsub import qsub
from tests.pbs.double.wire import (
    JOB_FINISHED,
    NO_HISTORY,
    SERVER,
    VERSION,
    NoServer,
    Refused,
    ask,
    full_id,
    not_in_the_double,
)

_USAGE = {
    "qstat": """\
usage: 
qstat [-f] [-J] [-p] [-t] [-x] [-E] [-F format | -w] [-D delim] [ job_identifier... | destination... ]
qstat [-a|-i|-r|-H|-T] [-J] [-t] [-u user] [-n] [-s] [-G|-M] [-1] [-w]
\t[ job_identifier... | destination... ]
qstat -Q [-f] [-F format] [-D delim] [ destination... ]
qstat -q [-G|-M] [ destination... ]
qstat -B [-f] [-F format] [-D delim] [ server_name... ]
qstat --version
""",  # noqa: W291
    "qdel": "usage:\n\tqdel [-W force|suppress_email=X] [-x] job_identifier...\n\tqdel --version\n",
    "qsig": "usage: qsig [-s signal] job_identifier...\n       qsig --version\n",
}
_NO_SERVER = 15010


class _Usage(Exception):
    """The command was not understood."""


def _options(name: str, arguments: Sequence[str], letters: str) -> tuple[dict[str, str], list[str]]:
    try:
        options, operands = getopt.getopt(list(arguments), letters)
    except getopt.GetoptError as error:
        print(f"{name}: {error.msg}", file=sys.stderr)
        raise _Usage from error
    return dict(options), operands


def qstat(arguments: Sequence[str]) -> int:
    """Show jobs, or with -Q the queues and with -B the server."""
    options, operands = _options("qstat", arguments, "fxtwF:QB")
    if {"-Q", "-B"} & options.keys():
        return _machine(options)
    form = options.get("-F", "default").lower()
    if form not in ("default", "json"):
        raise not_in_the_double(f"qstat -F {form}")
    wide = "-w" in options
    if wide and "-f" not in options:
        raise not_in_the_double("qstat -w without -f")
    if form == "json" and "-f" not in options:
        print("qstat: conflicting options.", file=sys.stderr)
        raise _Usage
    told: list[showing.Told] = []
    first_shown = False
    failed = 0
    asked: list[str | None] = [*operands] or [None]
    for job in asked:
        if job is not None and not job[:1].isdigit():
            raise not_in_the_double(f"qstat of {job}")
        try:
            answer = ask(
                {"request": "jobs", "job": job, "members": "-t" in options, "history": "-x" in options}
            )
            jobs = answer["jobs"]
            if form == "json":
                told = told or jobs  # of several jobs the first alone, as OpenPBS does since 2023-12
            elif "-f" in options:
                print(showing.full(jobs, wide=wide), end="")
            else:
                text = showing.table(jobs)
                print(text.split("\n", 2)[2] if first_shown and text else text, end="")
                first_shown = first_shown or bool(text)
        except NoServer as error:
            print(f"{error}\nqstat: cannot connect to server {SERVER} (errno={_NO_SERVER})", file=sys.stderr)
            failed = -1
        except Refused as refused:
            failed = 0 if refused.code == NO_HISTORY else refused.code
            if refused.code == NO_HISTORY:
                print(f"qstat: {refused.text} {full_id(job) if job else ''}", file=sys.stderr)
            elif refused.code == JOB_FINISHED and job is not None:
                hint = "use -x or -H to obtain historical job information"
                print(f"qstat: {full_id(job)} {refused.text}, {hint}", file=sys.stderr)
            else:
                print(f"qstat: {refused.text}", file=sys.stderr)
    if form == "json":
        print(showing.json_text(told), end="")
    return failed & 0xFF


def _machine(options: dict[str, str]) -> int:
    if options not in ({"-Q": "", "-f": ""}, {"-B": "", "-f": ""}):
        raise not_in_the_double(f"qstat {' '.join(options)}")
    ask({"request": "nodes"})  # whether there is a server
    print(machine.queues() if "-Q" in options else machine.server(), end="")
    return 0


def qselect(arguments: Sequence[str]) -> int:
    """Print the ids of jobs."""
    options, _ = _options("qselect", arguments, "xu:N:s:q:A:")
    request = {
        "request": "select",
        "history": "-x" in options,
        "user": options.get("-u"),
        "name": options.get("-N"),
        "queue": options.get("-q"),
        "account": options.get("-A"),
        "states": options.get("-s"),
    }
    try:
        for job in ask(request)["jobs"]:
            print(job)
    except NoServer as error:
        print(f"{error}\nqselect: cannot connect to server {SERVER} (errno={_NO_SERVER})", file=sys.stderr)
        return _NO_SERVER & 0xFF
    except Refused as refused:
        print(f"qselect: {refused.text}", file=sys.stderr)
        return 0 if refused.code == NO_HISTORY else refused.code & 0xFF
    return 0


def _each(name: str, operands: Sequence[str], request: dict[str, Any]) -> int:
    """Ask the same for each job; the code of the last refusal."""
    if not operands:
        raise _Usage
    failed = 0
    for job in operands:
        try:
            ask({**request, "job": job})
        except NoServer as error:
            words = (
                "Couldn't connect to cluster: " if name == "qdel" else f"{name}: cannot connect to server "
            )
            tail = "" if name == "qdel" else f" (errno={_NO_SERVER})"
            print(f"{error}\n{words}{SERVER}{tail}", file=sys.stderr)
            failed = _NO_SERVER
        except Refused as refused:
            print(f"{name}: {refused.text}", file=sys.stderr)
            failed = refused.code
    return failed & 0xFF


def qdel(arguments: Sequence[str]) -> int:
    """End jobs."""
    options, operands = _options("qdel", arguments, "W:x")
    me = {"user": pwd.getpwuid(os.geteuid()).pw_name, "host": socket.gethostname()}
    forced = options.get("-W") == "force"
    return _each("qdel", operands, {"request": "delete", "purge": "-x" in options, "force": forced, **me})


def qsig(arguments: Sequence[str]) -> int:
    """Signal jobs."""
    options, operands = _options("qsig", arguments, "s:")
    return _each("qsig", operands, {"request": "signal", "signal": options.get("-s", "SIGTERM")})


def qhold(arguments: Sequence[str]) -> int:
    """Hold jobs."""
    _, operands = _options("qhold", arguments, "")
    return _each("qhold", operands, {"request": "hold", "release": False})


def qrls(arguments: Sequence[str]) -> int:
    """Release jobs."""
    _, operands = _options("qrls", arguments, "")
    return _each("qrls", operands, {"request": "hold", "release": True})


def qrerun(arguments: Sequence[str]) -> int:
    """Have jobs begin again."""
    _, operands = _options("qrerun", arguments, "")
    return _each("qrerun", operands, {"request": "rerun"})


def qmgr(arguments: Sequence[str]) -> int:
    """Change a setting of the server: qmgr -c 'set server NAME = VALUE'."""
    options, _ = _options("qmgr", arguments, "c:")
    words = options.get("-c", "").replace("=", " = ").split()
    if words[:2] != ["set", "server"] or len(words) != 5:
        raise not_in_the_double(f"qmgr {' '.join(arguments)}")
    ask({"request": "set", "name": words[2], "value": words[4]})
    return 0


def pbsnodes(arguments: Sequence[str]) -> int:
    """Say how the nodes are: -a all, or -l those that are down."""
    options, _ = _options("pbsnodes", arguments, "al")
    states = ask({"request": "nodes"})["nodes"]
    print(machine.lost(states) if "-l" in options else machine.nodes(states), end="")
    return 0


def pbs_tmrsh(arguments: Sequence[str]) -> int:
    """Run a command on another node of the job that this is in: HOST COMMAND…"""
    job = os.environ.get("PBS_JOBID")
    if job is None:
        print("pbs_tmrsh: PBS jobid not in environment.", file=sys.stderr)
        return 1
    if len(arguments) < 2:
        print("Usage: pbs_tmrsh host [-n][-l username] [-n][-l username] command", file=sys.stderr)
        return 254
    node, *command = arguments
    answer = ask({"request": "spawn", "job": job, "node": node, "command": command})
    if answer["status"] is None:
        print(f'pbs_tmrsh: host "{node}" is not a node in job <{job}>', file=sys.stderr)
        return 255
    return int(answer["status"])


def pbs_attach(arguments: Sequence[str]) -> int:
    """Add a process's session to a job: -j JOB -p PROCESS."""
    options, _ = _options("pbs_attach", arguments, "j:p:")
    session = os.getsid(int(options["-p"]))
    if session == 0:  # it began outside these hosts, as did all that holds them
        print("pbs_attach: no such session", file=sys.stderr)
        return 1
    ask({"request": "attach", "job": options["-j"], "node": socket.gethostname(), "session": session})
    return 0


COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    one.__name__: one
    for one in (
        *(qsub, qstat, qselect, qdel, qsig, qhold, qrls, qrerun, qmgr, pbsnodes, pbs_tmrsh, pbs_attach),
    )
}


def main(name: str, arguments: Sequence[str]) -> int:
    """Be one of the commands."""
    if list(arguments) == ["--version"]:
        print(f"pbs_version = {VERSION}")
        return 0
    try:
        return COMMANDS[name](arguments)
    except _Usage:
        print(_USAGE.get(name, f"usage: {name}\n"), end="", file=sys.stderr)
        return 2
    except Refused as refused:
        print(f"{name}: {refused.text}", file=sys.stderr)
        return refused.code & 0xFF
    except NoServer as error:
        print(f"{error}\n{name}: cannot connect to server {SERVER} (errno={_NO_SERVER})", file=sys.stderr)
        return _NO_SERVER & 0xFF
