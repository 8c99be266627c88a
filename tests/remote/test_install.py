"""castoff installs itself on a machine, for the Python there, and never half."""

from __future__ import annotations

import subprocess

import pytest

from castoff.launcher.remote.messages import PROTOCOL
from tests.remote.conftest import Laptop

pytestmark = pytest.mark.costly


def test_it_installs_itself_whole_or_not_at_all(laptop: Laptop) -> None:
    laptop.add("far", "broken", castoff="", dir=str(laptop.far / "a new folder"))
    laptop.a_job()
    missing = laptop("--on", "far", "submit", "job.yaml")
    assert missing.returncode == 1 and "`castoff on install far` makes it" in missing.stderr, missing.stderr
    laptop.machine.order_link("cut 1000000")
    broken = laptop("on", "install", "far")
    assert broken.returncode == 1 and "`castoff on install far` continues" in broken.stderr, broken.stderr
    half = laptop("--on", "far", "list")
    assert half.returncode == 1 and "`castoff on install far` installs it" in half.stderr, half.stderr
    laptop.machine.order_link("")
    installed = laptop("on", "install", "far")
    assert installed.returncode == 0 and "is installed, in " in installed.stderr, installed.stderr
    answer = laptop("--on", "far", "submit", "--follow", "job.yaml")
    assert answer.returncode == 0 and "here is " in answer.stdout, answer.stderr
    assert "has castoff" not in answer.stderr  # no other version
    again = laptop("on", "install", "far")
    assert again.returncode == 0 and "is there already" in again.stderr
    home = laptop.machine.homes["sh"] / ".local/share/castoff/far"
    (laptop.far / "a new folder").chmod(0o777)
    open_to_others = laptop("on", "install", "far")
    assert open_to_others.returncode == 0
    assert f"castoff: far: {laptop.far}/a new folder: is not used, since it can be" in open_to_others.stderr
    (laptop.far / "a new folder").chmod(0o755)
    share = home.parents[1]
    share.parent.chmod(0o755)
    share.chmod(0o777)
    refused = laptop("--on", "far", "list")
    assert refused.returncode == 1, refused.stdout
    assert (
        f"because others can change {share} on the path to it (mode drwxrwxrwx, owner 0)\n" in refused.stderr
    )
    share.chmod(0o700)
    program = home / "current/bin/castoff"
    called = ["on", "run", "--caller=0.1.0+gother", "--machine=far", "--named"]
    for protocol, code, words in (
        (PROTOCOL, 0, "`castoff on install far` installs the same there"),
        (PROTOCOL + 1, 1, "cannot work together"),
    ):
        line = [str(program), *called, f"--protocol={protocol}", "--", "list"]
        answered = subprocess.run(line, capture_output=True, text=True, check=False)
        assert answered.returncode == code and answered.stderr.count(words) == 1, answered.stderr


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_sent(laptop: Laptop) -> None:
    laptop.write("file", "")
    laptop.add("far", castoff="", dir=str(laptop.project / "file/folder"))
    refused = laptop("on", "install", "far")
    assert refused.returncode == 1 and "file/folder cannot be made by you there" in refused.stderr
    assert "wheels" not in refused.stderr


def test_a_machine_without_python_says_what_to_do(laptop: Laptop) -> None:
    laptop.add("far", "csh", castoff="", python="python9.9")
    refused = laptop("on", "install", "far")
    assert refused.returncode == 1
    assert "far: there is no Python 3.10 or newer among python9.9" in refused.stderr
