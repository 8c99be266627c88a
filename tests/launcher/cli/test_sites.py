"""`castoff sites check` from end to end, with programs that print what real schedulers answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ..conftest import Castoff

Answers = Callable[..., dict[str, str]]

LAB = """
description: the machine that was recorded
extends: slurm
queues:
  debug:
    ranges: [{max_nodes: 2, max_walltime: 1h}]
    source: a wiki
    date: 2026-10-01
  gone: {source: a wiki, date: 2026-10-01}
array: {max_count: 65000, source: a wiki, date: 2026-10-01}
"""

MACHINE = """
description: the machine that was recorded
extends: slurm
queues:
  debug:
    ranges: [{max_nodes: 2, max_walltime: 30m}]
    source: scontrol show partition debug
    date: 2026-10-01
array: {max_count: 65000, source: scontrol show config, date: 2026-10-01}
"""


def profile(folder: Path, name: str, text: str) -> Path:
    path = folder / ".castoff" / "sites" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


class TestCheck:
    def test_nothing_differs(self, castoff: Castoff, answering: Answers, tmp_path: Path) -> None:
        path = profile(tmp_path, "lab", MACHINE)
        answer = castoff("sites", "check", "lab", env=answering("slurm-accounting"))
        assert (answer.returncode, answer.stderr) == (0, f"castoff: site lab: uses the project's {path}\n")
        first, *rest = answer.stdout.splitlines()
        assert first == "lab and Slurm: nothing differs"
        assert rest and all(line.startswith("not compared: ") for line in rest)

    def test_what_differs(self, castoff: Castoff, answering: Answers, tmp_path: Path) -> None:
        path = profile(tmp_path, "lab", LAB)
        answer = castoff("sites", "check", "lab", env=answering("slurm-accounting"))
        assert (answer.returncode, answer.stderr) == (1, f"castoff: site lab: uses the project's {path}\n")
        assert answer.stdout.splitlines()[:3] == [
            "queues.debug.max_walltime: lab: 01:00:00 (a wiki, 2026-10-01); Slurm: 00:30:00",
            "queues.gone: lab: listed (a wiki, 2026-10-01); Slurm: not listed",
            "lab and Slurm: 2 differences",
        ]

    def test_for_programs(self, castoff: Castoff, answering: Answers, tmp_path: Path) -> None:
        profile(tmp_path, "lab", LAB)
        answer = castoff("sites", "check", "lab", "--json", env=answering("slurm-accounting"))
        assert answer.returncode == 1
        reported = json.loads(answer.stdout)
        assert (reported["site"], reported["scheduler"]) == ("lab", "Slurm")
        assert reported["differences"][1] == {
            "field": "queues.gone",
            "profile": "listed",
            "source": "a wiki",
            "date": "2026-10-01",
            "scheduler": "not listed",
        }
        assert reported["not_compared"]

    def test_the_site_that_a_job_would_have(self, castoff: Castoff, answering: Answers) -> None:
        environ = {**answering("slurm-plain"), "CASTOFF_SITE": "slurm"}
        answer = castoff("sites", "check", env=environ)
        assert answer.stderr.startswith("castoff: site slurm: CASTOFF_SITE is set")
        assert answer.returncode in (0, 1) and "slurm and Slurm: " in answer.stdout

    def test_accounting_that_is_off(self, castoff: Castoff, answering: Answers) -> None:
        answer = castoff("sites", "check", "perlmutter", env=answering("slurm-plain"))
        assert answer.returncode == 1
        assert "not compared: qos: `sacctmgr " in answer.stdout
        assert "You are not running a supported accounting_storage plugin" in answer.stdout

    @pytest.mark.parametrize("words", [(), ("--json",)])
    def test_no_scheduler(self, words: tuple[str, ...], castoff: Castoff, answering: Answers) -> None:
        answer = castoff("sites", "check", "polaris", *words, env=answering("slurm-plain"))
        assert (answer.returncode, answer.stdout) == (2, "")
        why = "site polaris: `qstat -Q -f`: qstat is not on PATH here; "
        why += "ask on a login node of the machine"
        if words:
            assert json.loads(answer.stderr) == {"error": why, "exit_code": 2}
        else:
            assert answer.stderr == f"castoff: {why}\n"

    def test_its_own_words(self, castoff: Castoff, answering: Answers) -> None:
        environ = answering("pbs", qstat="echo 'Connection refused' >&2; exit 111")
        answer = castoff("sites", "check", "polaris", env=environ)
        assert (answer.returncode, answer.stdout) == (2, "")
        assert "`qstat -Q -f`: qstat failed with exit code 111: Connection refused" in answer.stderr

    def test_local(self, castoff: Castoff) -> None:
        answer = castoff("sites", "check", "local")
        assert (answer.returncode, answer.stdout) == (2, "")
        assert "site local: has no scheduler that could be asked" in answer.stderr


@pytest.mark.parametrize("words", [("aurora", "polaris"), ("check", "a", "b")])
def test_too_many_words(words: tuple[str, ...], castoff: Castoff) -> None:
    answer = castoff("sites", *words)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "(see castoff sites" in answer.stderr


def test_a_site_that_is_not_there(castoff: Castoff) -> None:
    answer = castoff("sites", "check", "polarsi")
    assert (answer.returncode, answer.stdout) == (2, "")
    assert "polarsi" in answer.stderr and "polaris" in answer.stderr


class TestList:
    def test_a_broken_profile_hides_no_other(self, castoff: Castoff, tmp_path: Path) -> None:
        profile(tmp_path, "good", "extends: local\ndescription: a good one\n")
        path = profile(tmp_path, "bad", "extends: slurm\nqueus: {}\n")
        answer = castoff("sites")
        rows = [line.split(maxsplit=2) for line in answer.stdout.splitlines()]
        assert ["good", "project", "a good one"] in rows
        assert ["bad", "project", "cannot be used, see below"] in rows
        assert rows[-1][:2] == ["without", "--site:"]
        assert answer.returncode == 2 and f"{path}:2: queus: " in answer.stderr
        reported = json.loads(castoff("sites", "--json").stdout)
        assert [bool(one["error"]) for one in reported["sites"] if one["from"] == "project"] == [True, False]
        assert castoff("sites", "good").returncode == 0

    def test_the_chosen_one_is_broken(self, castoff: Castoff, tmp_path: Path) -> None:
        """It is told of once, and the others are listed."""
        profile(tmp_path, "bad", "extends: slurm\nqueus: {}\n")
        answer = castoff("sites", env={"CASTOFF_SITE": "bad"})
        assert answer.returncode == 2 and answer.stderr.count("queus") == 1
        assert "\nlocal " in answer.stdout and "without --site" not in answer.stdout
        answer = castoff("sites", env={"CASTOFF_SITE": "nowhere"})
        assert answer.returncode == 2 and "site nowhere: there is no such profile" in answer.stderr
