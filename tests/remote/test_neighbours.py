"""Somebody else on the machine, in a project folder where both may write, who would have his castoff run."""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest

from tests.launcher.conftest import STRANGER
from tests.remote.conftest import Laptop

pytestmark = pytest.mark.costly

HIS = """
mv me gone && mkdir -p me/castoff/current/bin me/.castoff/sites
printf '#!/bin/sh\\ntouch ran\\n' >me/castoff/current/bin/python
cp me/castoff/current/bin/python me/castoff/current/bin/castoff
touch me/castoff/current/complete && chmod -R 777 me
"""


def as_somebody_else(line: str, folder: str | os.PathLike[str]) -> None:
    subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=folder,
        env={"PATH": os.defpath},
        user=STRANGER,
        group=STRANGER,
        extra_groups=[],
        check=True,
    )


def test_a_folder_of_theirs_in_place_of_ours(laptop: Laptop) -> None:
    project = laptop.far / "proj"
    (mine := project / "me").mkdir(parents=True)
    os.chown(project, 0, STRANGER)
    project.chmod(0o2775)
    laptop.add("new", castoff="", dir=str(mine))
    laptop.add("clu", dir=str(mine))

    refused = laptop("--on", "clu", "list")
    said, allow, shut, other = refused.stderr.splitlines()
    assert refused.returncode == 1
    assert said.startswith(f"castoff: {mine}: is not used, since {project} can be changed by group ")
    assert shut.startswith("castoff: or shut them out on clu: chmod go-w ")
    assert other.startswith("castoff: or use another folder there, with --dir of ")
    checked = laptop("on", "check", "clu")  # by messages, not by a verb's own output
    assert checked.returncode == 1 and checked.stderr.splitlines()[1] == allow

    as_somebody_else(HIS, project)
    for name in ("new", "clu"):
        assert laptop("--on", name, "list").returncode == 1
    assert not (mine / "ran").exists() and not (laptop.machine.homes["sh"] / "ran").exists()
    as_somebody_else("rm -r me && mv gone me", project)

    words = shlex.split(allow.partition("from there: ")[2])
    assert words[:4] == ["castoff", "--on", "clu", "trust"]
    allowed = laptop(*words[1:])
    assert allowed.returncode == 0 and f"trusts      {project}" in allowed.stdout, allowed.stderr
    listed = laptop("--on", "clu", "list")
    assert listed.returncode == 0, listed.stderr
    assert laptop("trust").stdout == ""  # of this machine
