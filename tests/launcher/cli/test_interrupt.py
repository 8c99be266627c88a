"""Ctrl-C while Python still loads what a verb needs: it ends, and says nothing."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import click
import pytest

from castoff.launcher.cli.group import castoff
from tests import patience
from tests.command_line import COMMAND, environment

AT_AN_IMPORT = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPT_AT"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
"""
"""Python runs a sitecustomize before anything else."""

RENDER = ["render", "--site", "local", "--", "true"]


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("castoff.launcher.cli", ["--help"]),
        ("castoff.launcher.cli.help", ["--help"]),
        ("castoff.launcher.errors", RENDER),
        ("click", RENDER),
        ("castoff.launcher.cli.render", RENDER),
        ("msgspec", RENDER),
        ("yaml", RENDER),
        ("castoff.launcher.planning.planner", RENDER),
        ("castoff.launcher.runs.index", ["status"]),
        ("castoff.launcher.status.poller", ["logs"]),
        ("castoff.launcher.submission.submit", ["submit", "--site", "local", "--", "true"]),
        ("castoff.launcher.cli.here", ["launch", "--here", "--", "true"]),
        ("castoff.launcher.launchers.local.start", ["launch", "true"]),
        ("castoff.trainers.gnn", ["train", "gnn", "a.yaml"]),
        ("yaml", ["train", "gnn", "a.yaml"]),
        pytest.param("torch", ["train", "gnn", "a.yaml"], id="torch"),
    ],
)
def test_it_is_quiet(module: str, words: list[str], tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(AT_AN_IMPORT)
    (tmp_path / "a.yaml").write_text("training: {num_epochs: 1}\n")
    ended = subprocess.run(
        [COMMAND, *words],
        cwd=tmp_path,
        env=environment({"PYTHONPATH": str(tmp_path / "site"), "INTERRUPT_AT": module}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
    )
    assert ended.returncode in (130, -signal.SIGINT), ended
    assert (ended.stdout + ended.stderr).strip() == ""


def test_where_it_is_ignored_it_stays_so(tmp_path: Path) -> None:
    """As in a shell's background job."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(AT_AN_IMPORT)
    shell: list[str] = ["sh", "-c", 'trap "" INT; exec "$0" "$@"', str(COMMAND), *RENDER]
    ended = subprocess.run(
        shell,
        cwd=tmp_path,
        env=environment({"PYTHONPATH": str(tmp_path / "site"), "INTERRUPT_AT": "click"}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
    )
    assert ended.returncode == 0 and ended.stdout.startswith("#!"), ended


def test_a_completion_ends_without_a_traceback() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        of_completion = castoff.make_context("castoff", ["status"], resilient_parsing=True)
        castoff.resolve_command(of_completion, ["status"])
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        castoff.resolve_command(click.Context(castoff), ["status"])
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
