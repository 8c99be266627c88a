"""What castoff and others do, each run here: `python -m bench.peers [NAME …]`.

docs/reference/comparison.md shows its table.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from importlib.metadata import version
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from bench.peers.programs import BATCH, EPOCHS, PEERS, SAMPLES, Case, Network, Peer, Result
from castoff.launcher.launchers.local import this_host

RANKS = 2
PER_EPOCH = SAMPLES // BATCH // RANKS
STOP, BEFORE = 4, 2
"""The steps of the checkpoints, within the first epoch."""
PATIENCE = 60.0
"""Seconds after which ranks that wait for each other are ended."""
IMPORTED = (
    "torch._dynamo",
    "lightning_fabric",
    "pytorch_lightning",
    "accelerate",
    "transformers",
    "castoff.trainers.ddp",
)


class Ended(NamedTuple):
    """How the ranks of a program ended."""

    answers: list[Any]
    codes: list[int | None]
    """None: it had to be ended."""
    calls: dict[str, int]
    """Of rank 0: how often it flushed or renamed a file."""
    said: str
    """The last line of rank 0."""


def run(function: Callable[[Case], Any], case: Case) -> Ended:
    """Run a function on two forked ranks, for which everything is imported already."""
    case.folder.mkdir(parents=True, exist_ok=True)
    fork = multiprocessing.get_context("fork")
    port = this_host.free_port(uuid.uuid4().hex)
    pipes = [fork.Pipe(duplex=False) for _ in range(RANKS)]
    ranks = [
        fork.Process(target=_rank, args=(function, case, rank, port, pipes[rank][1])) for rank in range(RANKS)
    ]
    for rank in ranks:
        rank.start()
    for _, sending in pipes:
        sending.close()
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and (alive := [rank.sentinel for rank in ranks if rank.exitcode is None]):
        wait(alive, timeout=until - time.monotonic())
    codes = [rank.exitcode for rank in ranks]
    for rank in ranks:
        rank.kill()
        rank.join()
    answers = [_received(receiving) for receiving, _ in pipes]
    calls = answers[0][1] if answers[0] else {}
    lines = (case.folder.parent / f"{case.folder.name}.log").read_text(errors="replace").splitlines()
    return Ended([each and each[0] for each in answers], codes, calls, lines[-1] if lines else "")


def _received(pipe: Connection) -> Any:
    with contextlib.suppress(EOFError):
        return pipe.recv()
    return None


def _rank(function: Callable[[Case], Any], case: Case, rank: int, port: int, answer: Connection) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "NODE_RANK": "0", "MASTER_PORT": str(port)}
    os.environ |= {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1"}
    os.environ |= {"CASTOFF_LAUNCHER": "local", "CASTOFF_RANK": f"{rank}/{RANKS}"}
    os.chdir(case.folder)
    log = case.folder.parent / f"{case.folder.name}.log"
    if rank == 0:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    else:
        descriptor = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    import torch

    torch.set_num_threads(1)
    calls = _counted()
    try:
        given = function(case)
    except SystemExit as stopped:
        answer.send((Network.latest.result(), calls))
        answer.close()
        raise stopped
    answer.send((given, calls))
    answer.close()


def _counted() -> dict[str, int]:
    """How often this process flushes and renames files, from now on."""
    calls = {"flushes": 0, "renames": 0}
    flush = os.fsync

    def counted(descriptor: Any) -> None:
        calls["flushes"] += 1
        flush(descriptor)

    def heard(event: str, _: tuple[Any, ...]) -> None:
        calls["renames"] += event == "os.rename"

    vars(os)["fsync"] = counted
    sys.addaudithook(heard)
    return calls


# --- What is asked --------------------------------------------------------------------------------


def resumes(peer: Peer, folder: Path) -> dict[str, str]:
    """Of a training that ends within an epoch, and one that resumes: the same batches, the same weights?"""
    whole = run(peer.train, Case(folder / "whole"))
    stopped = run(peer.train, Case(folder / "parts", stop_after=STOP))
    rest = run(peer.train, Case(folder / "parts", resumes=True))
    calls = stopped.calls
    written = [
        word for word, count in (("flushed", calls["flushes"]), ("renamed", calls["renames"])) if count
    ]
    found = {"checkpoint's files": " and ".join(written) or "written in place"}
    if None in whole.answers or None in rest.answers:
        return {**found, "resume within an epoch": f"fails: {_kind(rest.said or whole.said)}"}
    weights = [each.weights for each in whole.answers] == [each.weights for each in rest.answers]
    follows = all(map(_follows, whole.answers, stopped.answers, rest.answers))
    return {
        **found,
        "batches after a resume within an epoch": "the next ones" if follows else "not the next ones",
        "weights after it": "the same bits" if weights else "others",
    }


def _follows(whole: Result, stopped: Result, rest: Result) -> bool:
    """Whether a rank has trained on the same batches in the same order."""
    return stopped.seen + rest.seen == whole.seen


def _kind(line: str) -> str:
    """The exception of a traceback's last line."""
    return line.partition(":")[0]


def damaged(peer: Peer, folder: Path) -> dict[str, str]:
    """The largest file of the newest of two checkpoints is cut: what a resume does."""
    stopped = run(peer.train, Case(folder / "parts", stop_after=STOP, save_at=BEFORE))
    files = [path for path in (folder / "parts").rglob("*") if path.is_file() and not path.is_symlink()]
    newest = max(path.stat().st_mtime for path in files if path.stat().st_size > 1000)
    late = [path for path in files if path.stat().st_mtime > newest - 0.05 and "metrics" not in path.name]
    victim = max(late, key=lambda path: (path.stat().st_size, path.stat().st_mtime))
    with victim.open("r+b") as file:
        file.truncate(victim.stat().st_size // 2)
    rest = run(peer.train, Case(folder / "parts", resumes=True))
    if None in rest.answers:
        return {"newest checkpoint cut": f"fails: {_kind(rest.said)}"}
    begun = EPOCHS * PER_EPOCH - len(rest.answers[0].seen)
    whence = {0: "starts over", len(stopped.answers[0].seen): f"resumes, {victim.name} ignored"}
    return {"newest checkpoint cut": whence.get(begun, "resumes from the one before")}


def terminated(peer: Peer, folder: Path) -> dict[str, str]:
    """Rank 1 gets a TERM in step 3."""
    ended = run(peer.train, Case(folder / "parts", term_at=3))
    kept = any(path.stat().st_size > 1000 for path in (folder / "parts").rglob("*") if path.is_file())
    codes = ", ".join("none" if code is None else str(code) for code in ended.codes)
    waited = f" within {PATIENCE:.0f} s" if None in ended.codes else ""
    return {"TERM to rank 1": f"{'saved' if kept else 'nothing saved'}; exit codes {codes}{waited}"}


def validates(peer: Peer, folder: Path) -> dict[str, str]:
    """The mean loss over 5 samples on 2 ranks, in batches of 2."""
    ended = run(lambda case: peer.validate(case).error(), Case(folder / "validated"))
    if ended.answers[0] is None:
        return {"mean over 5 samples": f"fails: {_kind(ended.said)}"}
    error = ended.answers[0]
    return {"mean over 5 samples": "exact" if error < 1e-6 else f"{100 * error:.0f} % off"}


def main(names: list[str]) -> None:
    """Run everything, and print a table."""
    for name in IMPORTED:
        importlib.import_module(name)
    found: dict[str, dict[str, str]] = {}
    for name in names or PEERS:
        peer = PEERS[name]
        found[name] = {"version": version(peer.package)}
        for ask in (resumes, validates, terminated, damaged):
            folder = Path(tempfile.mkdtemp(prefix="castoff-peers-"))
            try:
                found[name] |= ask(peer, folder)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        print(name, found[name], flush=True)
    print("\n".join(table(found)))


def table(found: dict[str, dict[str, str]]) -> list[str]:
    """Markdown: a row for each question, a column for each library."""
    questions = list(dict.fromkeys(question for each in found.values() for question in each))
    head = [f"| library | {' | '.join(found)} |", "|---" * (len(found) + 1) + "|"]
    rows = [f"| {one} | {' | '.join(each.get(one, '–') for each in found.values())} |" for one in questions]
    return [*head, *rows]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    main(sys.argv[1:])
