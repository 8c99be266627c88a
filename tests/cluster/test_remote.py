"""castoff --on a cluster: from here to its head node by a real sshd there, and to its Slurm."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import COMMAND, Castoff
from tests.conftest import SystemProgram
from tests.remote_machine import PACKAGES

from . import HEAD
from .slurm import SlurmCluster

pytestmark = pytest.mark.costly


@pytest.fixture
def ssh(slurm: SlurmCluster, tmp_path: Path, system_program: SystemProgram) -> Path:
    """A folder with an ssh that leads to an sshd on the head node."""
    for program in ("ssh", "sshd"):
        system_program(program, PACKAGES[program])
    for name in ("host_key", "key"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
    (tmp_path / "sshd_config").write_text(
        f'HostKey "{tmp_path}/host_key"\nAuthorizedKeysFile "{tmp_path}/key.pub"\nStrictModes no\n'
        "PermitRootLogin yes\nUsePAM no\nPidFile none\n"
    )
    assert slurm.run(HEAD, ["mkdir", "-p", "-m", "755", "/run/sshd"]).returncode == 0
    sshd = [
        *slurm.hosts.enter(HEAD, "/"),
        str(shutil.which("sshd")),
        "-i",
        "-f",
        str(tmp_path / "sshd_config"),
    ]
    (tmp_path / "ssh_config").write_text(
        f'Host head\n  User root\n  IdentityFile "{tmp_path}/key"\n  IdentitiesOnly yes\n'
        "  IdentityAgent none\n"
        f'  UserKnownHostsFile "{tmp_path}/known"\n  StrictHostKeyChecking no\n  LogLevel ERROR\n'
        f"  ControlPath none\n  ProxyCommand {shlex.join(sshd)}\n"
    )
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F "{tmp_path}/ssh_config" "$@"\n')
    (folder / "ssh").chmod(0o755)
    return folder


def test_a_job_from_a_laptop_to_slurm(ssh: Path, castoff_command: Castoff, tmp_path: Path) -> None:
    project, far, home = tmp_path / "project", tmp_path / "far away", tmp_path / "its home"
    for folder in (project, far, home):
        folder.mkdir()
    (project / "train.py").write_text("import os; print('rank', os.environ['RANK'], 'in', os.getcwd())\n")
    run = tmp_path / "run"
    run.mkdir(mode=0o700)
    env = {"PATH": f"{ssh}:{COMMAND.parent}:/usr/bin:/bin", "XDG_RUNTIME_DIR": str(run)}

    def castoff(*words: str | Path) -> subprocess.CompletedProcess[str]:
        return castoff_command(*words, cwd=project, env=env)

    setup = [f"export HOME={shlex.quote(str(home))} XDG_STATE_HOME=", f"export PATH={COMMAND.parent}:$PATH"]
    options = [word for line in setup for word in ("--setup", line)]
    assert castoff("on", "add", "lab", "head", "--dir", far, "--castoff", COMMAND, *options).returncode == 0
    words = (
        "submit",
        "--yes",
        "--follow",
        "--nodes",
        "2",
        "--ranks-per-node",
        "2",
        "-t",
        "5m",
        "--",
        sys.executable,
        "train.py",
    )
    answer = castoff("--on", "lab", *words)
    assert answer.returncode == 0, answer.stderr
    (code,) = (far / "code" / "project").glob("[!.]*")
    assert all(f"rank {rank} in {code}" in answer.stdout for rank in range(4)), answer.stdout
    assert "(slurm)" in answer.stdout and "site slurm" in castoff("--on", "lab", "render", "--", "x").stderr
    (directory,) = (far / "castoff-runs").glob("[!.]*")
    assert castoff("--on", "lab", "wait", directory.name).stdout == f"{directory.name}: done\n"
