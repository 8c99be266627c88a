"""How the double's commands, server and moms talk: lines of JSON to a port of the head node."""

from __future__ import annotations

import json
import socket
import sys
from typing import Any

VERSION = "23.06.06"
SERVER = "head"
PORT = 15001
HOMES = "/run/pbs"
"""What stands for PBS_HOME of each host, by its name."""

UNKNOWN_JOB = 15001
ILLEGAL_REQUEST = 15004
UNKNOWN_SIGNAL = 15013
ILLEGAL_VALUE = 15014
BAD_STATE = 15016
UNKNOWN_QUEUE = 15018
UNKNOWN_RESOURCE = 15035
LIMIT_OF_QUEUE = 15036
NO_RERUN = 15038
BAD_DEPENDENCY = 15054
BAD_NODES = 15089
ARRAY_SIZE = 15107
NOT_WITH_SELECT = 15109
NODES_WITH_SELECT = 15110
TWICE_IN_CHUNK = 15116
JOB_FINISHED = 15139
NO_HISTORY = 15140
LIMIT_OF_USER = 15142

TEXTS = {
    UNKNOWN_JOB: "Unknown Job Id",
    UNKNOWN_SIGNAL: "Unknown/illegal signal name",
    ILLEGAL_VALUE: "Illegal attribute or resource value",
    BAD_STATE: "Request invalid for state of job",
    UNKNOWN_QUEUE: "Unknown queue",
    UNKNOWN_RESOURCE: "Unknown resource",
    LIMIT_OF_QUEUE: "Job violates queue and/or server resource limits",
    NO_RERUN: "job is not rerunnable",
    BAD_DEPENDENCY: "Invalid Job Dependency",
    ARRAY_SIZE: "Array job exceeds server or queue size limit",
    NOT_WITH_SELECT: '"-lresource=" cannot be used with "select" or "place", resource is:',
    BAD_NODES: "node(s) specification error",
    NODES_WITH_SELECT: "Cannot be used with select or place:",
    TWICE_IN_CHUNK: "duplicated resource within a section of a select specification, resource is:",
    JOB_FINISHED: "Job has finished",
    NO_HISTORY: "PBS is not configured to maintain job history",
}


class Refused(Exception):
    """The server's no: a number, whose last eight bits become the command's exit code, and words."""

    def __init__(self, code: int, detail: str = "", *, colon: bool = False) -> None:
        super().__init__(code, detail)
        self.code = code
        self.text = f"{TEXTS.get(code, '')}{':' if colon else ''} {detail}".strip()


class NoServer(Exception):
    """Nobody answers."""


def ask(request: dict[str, Any]) -> dict[str, Any]:
    """The server's answer.

    Raises:
        NoServer: there is none.
        Refused: it says no.
    """
    try:
        with socket.create_connection((SERVER, PORT), timeout=60) as connection:
            connection.sendall(json.dumps(request).encode() + b"\n")
            line = connection.makefile().readline()
    except OSError as error:
        raise NoServer(error.strerror) from error
    if not line:
        raise NoServer("End of File")
    answer: dict[str, Any] = json.loads(line)
    if code := answer.get("code"):
        refused = Refused(code)
        refused.text = answer["text"]
        raise refused
    return answer


def not_in_the_double(what: str) -> SystemExit:
    """The end of a command that was asked for more than the double can do."""
    print(f"the double of PBS in tests/pbs does not know {what}", file=sys.stderr)
    return SystemExit(99)


def full_id(job: str) -> str:
    """A job's id with its server's name."""
    return job if "." in job else f"{job}.{SERVER}"
