from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from castoff.launcher.launchers.local import mpi_worlds
from castoff.launcher.launchers.local.mpi_worlds import MpiWorlds, mpi_of
from tests.conftest import SystemProgram

LOADED = (
    "import mmap, sys, time\n"
    "files = [open(name, 'rb') for name in sys.argv[1:]]\n"
    "maps = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) for file in files]\n"
    "print('there', flush=True)\n"
)
"""Has its arguments mapped, as the linker maps libraries."""
HINT = b"is alone, in an MPI world of size 1"


@pytest.fixture
def library(tmp_path: Path) -> Callable[[str], str]:
    def written(name: str) -> str:
        (path := tmp_path / name).parent.mkdir(exist_ok=True)
        path.write_bytes(b"\0" * 4096)
        return str(path)

    return written


@pytest.fixture
def started() -> Iterator[Callable[..., int]]:
    """Start a program; its process id, as soon as it has said something."""
    programs: list[subprocess.Popen[str]] = []

    def start(*command: str, **environment: str) -> int:
        pipe = subprocess.PIPE
        one = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=os.environ | environment)
        programs.append(one)
        assert one.stdout is not None and "there" in one.stdout.readline()
        return one.pid

    yield start
    for one in programs:
        one.communicate("")


@pytest.mark.parametrize("preload", [(), ["json"]], ids=["plain", "preloaded"])
def test_the_user_is_told(
    spawn: Callable[..., subprocess.Popen[bytes]], library: Callable[[str], str], preload: list[str]
) -> None:
    """Once, with the command to use instead; the ranks run on."""
    program = [sys.executable, "-c", LOADED + "time.sleep(1e6)", library("libmpi.so.40")]
    process = spawn(program, ranks=2, preload=preload)
    assert process.stderr is not None
    lines = iter(process.stderr.readline, b"")
    said = next(line for line in lines if HINT in line)
    assert b"(libmpi.so.40)" in said and b"--set launcher.name=openmpi" in said
    assert re.match(rb"castoff: rank [01] has loaded MPI", said)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert HINT not in b"".join(lines)


@pytest.mark.parametrize("given", [{"ranks": 1}, {"ranks": 2, "driver": True}], ids=["one", "driver"])
def test_nothing_where_no_others_are_meant(
    spawn: Callable[..., subprocess.Popen[bytes]], library: Callable[[str], str], given: dict[str, int]
) -> None:
    process = spawn([sys.executable, "-c", LOADED, library("libmpi.so.40")], **given)
    output, messages = process.communicate()
    assert b"there" in output and HINT not in messages


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["libmpi.so.40"], "libmpi.so.40"),
        (["libmpich.so.12.2.2"], "libmpich.so.12.2.2"),
        (["libmpi_gnu_123.so.12"], "libmpi_gnu_123.so.12"),
        (["libmpir.so.3"], None),
        (["libtorch_cpu.so", "libmpi.so.12"], None),
        (["libtorch_cpu.so", "libmpi.so.12", "mpi4py/MPI.so"], "libmpi.so.12"),
    ],
)
def test_what_counts(
    started: Callable[..., int], library: Callable[[str], str], names: list[str], found: str | None
) -> None:
    """A torch built with MPI alone says nothing about the program."""
    program = [sys.executable, "-c", LOADED + "sys.stdin.read()", *map(library, names)]
    assert mpi_of(started(*program)) == found
    assert mpi_of(started("/bin/sh", "-c", '"$@"; exit', "sh", *program)) == found


@pytest.mark.parametrize(
    ("mpiexec", "package", "library"),
    [("mpiexec.mpich", "mpich", "libmpich.so.12"), ("mpiexec.openmpi", "openmpi-bin", "libmpi.so.40")],
)
def test_a_rank_may_be_a_real_mpiexec(
    for_real: None,
    system_program: SystemProgram,
    started: Callable[..., int],
    mpiexec: str,
    package: str,
    library: str,
) -> None:
    program = str(system_program(mpiexec, package))
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    text = f"import ctypes, sys; ctypes.CDLL({library!r}); print('there', flush=True); sys.stdin.read()"
    alone = started(sys.executable, "-c", text, **root)
    assert str(mpi_of(alone)).startswith(library)
    assert mpi_of(started(program, "-n", "1", sys.executable, "-c", text, **root)) is None


def test_output_and_ends_are_occasions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few of much output, so that a flood costs little, and nothing once it has been said."""
    looked: list[int] = []
    monkeypatch.setattr(mpi_worlds, "mpi_of", lambda pid: looked.append(pid))
    worlds = MpiWorlds(2, {0: 70, 1: 71}, 0.0)
    for now in range(1, 1001):
        assert worlds.hear(0, now / 10) is None
    assert 10 <= len(looked) <= 20
    assert worlds.look(0.3) is None and worlds.due == 0.5, "an exit is no look that was due"
    assert looked[-2:] == [70, 71]
    monkeypatch.setattr(mpi_worlds, "mpi_of", lambda pid: "libmpi.so" if pid == 71 else None)
    assert (said := worlds.look(0.5)) is not None and said.startswith("rank 1 has loaded MPI (libmpi.so)")
    assert worlds.due is None and worlds.look(0.6) is worlds.hear(1, 1e6) is None
