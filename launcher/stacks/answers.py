"""Reads what templates/interactive/stacks.sh prints on a host. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from castoff.launcher.stacks.frames import Thread, of_faulthandler, of_py_spy, without_launcher

_STATES = {
    "D": "in state D, which no signal interrupts",
    "T": "stopped (state T)",
    "t": "stopped by a debugger (state t)",
    "Z": "dead, but not yet collected by its parent (state Z)",
}
"""States of processes that explain why a rank does not continue: proc(5)."""

_WAITS = {
    r"futex_": "waiting for a lock or another thread",
    r"hrtimer_nanosleep|do_nanosleep|nanosleep": "sleeping",
    r".*poll|ep_|do_select|inet_csk_accept|.*wait_for_connect": "waiting for other processes",
    r"sk_wait_data|tcp_|unix_stream_|unix_wait_|wait_woken": "waiting for other processes",
    r"pipe_|anon_pipe_|fifo_": "waiting for the other end of a pipe",
    r"do_wait|wait4|kernel_wait": "waiting for a child process",
    r"nfs|rpc_|ll_|cl_|osc_|ldlm_|ptlrpc_|cxiWaitEventWait|fuse_|request_wait_answer|locks_lock_|fcntl_|flock_"
    r"|io_schedule|folio_|wait_on_page_|ext4_|xfs_|jbd2_|btrfs_": "waiting for the file system",
}
"""What a process waits for in the kernel, by the beginnings of the functions' names."""


class RankStack(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's process, and its stack if that could be had."""

    rank: int | None
    """None: a process of a job that starts its own workers."""
    host: str
    pid: int
    state: str
    """The process's state in proc(5), such as R, S or D."""
    waits_in: str | None = None
    """The function of the kernel in which it waits."""
    source: str | None = None
    """Where the stack comes from: `handler`, the program's own, or `py-spy`; None: there is none."""
    threads: list[Thread] = []
    """The main thread first."""
    kernel: list[str] = []
    """Its stack in the kernel, which only root can see, if there is no other."""
    reason: str | None = None
    """Why there is no stack."""
    lacks: str | None = None
    """What would help: `py-spy`, or `permission` for py-spy to read the process."""

    @property
    def condition(self) -> str:
        """Its state in words, if that matters, and what it waits for in the kernel; perhaps empty."""
        words = [_STATES[self.state]] if self.state in _STATES else []
        if self.waits_in and self.state != "Z":
            meanings = (words for start, words in _WAITS.items() if re.match(start, self.waits_in))
            words.append(f"{next(meanings, 'waiting')} ({self.waits_in})")
        return ", ".join(words)


class Answer(msgspec.Struct, frozen=True):
    """What one host answered."""

    host: str
    ranks: list[RankStack]
    world_size: int
    """The WORLD_SIZE of its ranks; 0: none has one."""
    complete: bool
    """Whether the host had time for all of its ranks."""


def read_answer(host: str, mark: str, lines: Iterable[str]) -> Answer:
    """Read a host's output, in which `mark` begins each line that counts."""
    processes: list[list[str]] = []
    outputs: dict[str, list[str]] = {}
    scope, complete = "-", False
    for line in lines:
        begins, _, rest = line.rstrip("\n").partition(" ")
        if begins != mark:
            continue
        kind, _, text = rest.partition(" ")
        if kind == "ptrace":
            scope = text
        elif kind == "over":
            complete = True
        elif kind == "rank" and len(fields := text.split(" ")) == 8:
            processes.append(fields)
        elif len(fields := text.split(" ", 2)) == 3:
            outputs.setdefault(f"{kind} {fields[1]}", []).append(fields[2])
    ranks = [_rank(host, fields, outputs, scope) for fields in processes]
    return Answer(host, ranks, max((int(fields[1]) for fields in processes), default=0), complete)


def _rank(host: str, fields: Sequence[str], outputs: dict[str, list[str]], scope: str) -> RankStack:
    rank, _, pid, state, waits_in, _, is_python, name = fields

    def lines(kind: str) -> list[str]:
        return outputs.get(f"{kind} {pid}", [])

    threads, source = of_faulthandler(lines("handler")), "handler"
    if not threads:
        threads, source = of_py_spy(lines("py-spy"), int(pid)), "py-spy"
    threads = [without_launcher(thread) for thread in threads]
    reason, lacks = (None, None) if threads else _reason(state, is_python == "1", name, lines, scope)
    return RankStack(
        rank=int(rank) if rank.isdecimal() else None,
        host=host,
        pid=int(pid),
        state=state,
        waits_in=None if waits_in == "-" else waits_in,
        source=source if threads else None,
        threads=threads,
        kernel=[] if threads else [line.partition("] ")[2] or line for line in lines("kernel")],
        reason=reason,
        lacks=lacks,
    )


def _reason(
    state: str, is_python: bool, name: str, lines: Callable[[str], list[str]], scope: str
) -> tuple[str, str | None]:
    """Why a process shows no stack, and what would help."""
    if state == "Z":
        return "its process is dead", None
    if not is_python:
        return f"it is not a Python process, but {name}", None
    notes = lines("note")
    if lines("missing"):
        unasked = "its program has no handler that writes stacks"
        return "; ".join(["no py-spy on its host", *(notes or [unasked])]), "py-spy"
    if refused := [line.strip() for line in lines("refused") if line.strip()]:
        if re.search("permi(ssion|tted)", "".join(refused), re.IGNORECASE):
            setting = "" if scope in ("-", "0") else f" (kernel.yama.ptrace_scope is {scope})"
            return "; ".join([f"py-spy may not read its memory{setting}", *notes]), "permission"
        return "; ".join([f"py-spy failed: {refused[0]}", *notes]), None
    return "; ".join(["its host did not get to it in time", *notes]), None
