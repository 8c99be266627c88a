"""castoff doctor: what would keep a job from running; --trust: who else could change what will run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.trust.mounts import Mount
from tests.command_line import Castoff

from ..conftest import STRANGER, give_away

Answers = Callable[..., dict[str, str]]


@pytest.fixture(autouse=True)
def installed_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever owns the castoff, the Python and the PATH that these tests run with."""
    monkeypatch.setattr("castoff.launcher.diagnosis.exposure._of_castoff", lambda environ: iter(()))


JOB = """
python: env/bin/python
templates: ours
setup: [". ./env.sh", "module load x"]
command: [./run.sh, --config, settings.yaml, none.yaml]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with all that can be somebody else's."""
    for name in ("env/bin/python", "ours/blocks/start.sh", "env.sh", "run.sh", "settings.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o755)
    (tmp_path / "job.yaml").write_text(JOB.replace("env/bin", f"{tmp_path}/env/bin"))
    (tmp_path / ".castoff" / "sites").mkdir(parents=True)
    (tmp_path / ".castoff" / "sites" / "local.yaml").write_text("extends: local\nsetup: ['. ./env.sh']\n")
    return tmp_path


def weak(castoff: Castoff, *words: str) -> dict[str, list[str]]:
    """By what they are, the paths that others can change."""
    answer = castoff("doctor", "--trust", "--json", "--site", "local", *words)
    reported: list[dict[str, Any]] = [json.loads(line) for line in answer.stdout.splitlines()]
    assert answer.returncode == any(not one["trusted"] for one in reported)
    return {one["what"]: [bad["path"] for bad in one["weak"]] for one in reported}


def test_nothing(castoff: Castoff, project: Path) -> None:
    found = weak(castoff, "job.yaml")
    assert not any(found.values())
    assert {"job file", "project's profile", "folder of runs", "program", "setup's file"} <= found.keys()
    answer = castoff("doctor", "--trust")
    assert answer.returncode == 0
    assert answer.stdout.endswith("only you, root and those you trust can change any of it\n")


def test_a_file_system_that_shows_no_access_lists(
    castoff: Castoff, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As castoff cannot tell, it neither refuses nor says that all is well."""
    monkeypatch.setattr(
        "castoff.launcher.trust.mounts.current_mounts", lambda: [Mount("/", "gpfs", "project")]
    )
    answer = castoff("doctor", "--trust", "job.yaml", "--site", "local")
    assert answer.returncode == 0
    said = "gpfs does not show access lists, so others may be able to change it"
    assert f"job file           job.yaml\n{'':21}{said}\n" in answer.stdout
    assert answer.stdout.endswith("can change any of it, as far as access lists are known\n")
    answer = castoff("doctor", "job.yaml", "--site", "local")
    assert f"unknown  trust      your home {Path.home()} and " in answer.stdout and said in answer.stdout


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("job file", "job.yaml"),
        ("job's python", "env/bin"),
        ("templates", "ours/blocks/start.sh"),
        ("setup's file", "env.sh"),
        ("program", "run.sh"),
        ("program's file", "settings.yaml"),
        ("project's profile", ".castoff/sites/local.yaml"),
        ("project", ".castoff"),
    ],
)
@pytest.mark.parametrize("how", ["theirs", "shared"])
@pytest.mark.usefixtures("shared_group")
def test_each_thing(castoff: Castoff, project: Path, what: str, name: str, how: str) -> None:
    """A group is enough, though a job file that a group can change is used."""
    if how == "theirs":
        give_away(project / name)
    else:
        (project / name).chmod(0o775)
    assert str(project / name) in weak(castoff, "job.yaml")[what]


@pytest.mark.usefixtures("shared_group")
def test_a_folder_above_all_and_the_fix(castoff: Castoff, project: Path) -> None:
    project.chmod(0o2775)
    answer = castoff("doctor", "--trust", "job.yaml", "--site", "local")
    assert answer.returncode == 1
    lines = answer.stdout.splitlines()
    assert lines[-2].endswith(f": castoff trust {project}")
    assert lines[-1] == f"or shut them out: chmod go-w {project}"
    at = next(number for number, line in enumerate(lines) if line.startswith("job file "))
    assert lines[at + 1].strip().startswith(f"{project} can be changed by group ")
    assert castoff("trust", project).returncode == 0
    answer = castoff("doctor", "--trust", "job.yaml", "--site", "local")
    assert answer.returncode == 0 and "mode 2775) (trusted)\n" in answer.stdout


def test_doctor_reports_all_although_castoff_refuses_a_file(castoff: Castoff, project: Path) -> None:
    give_away(project / ".castoff")
    answer = castoff("doctor", "--trust", "job.yaml", "--site", "local")
    assert answer.returncode == 1 and "not looked into: " in answer.stderr
    assert f"{project}/.castoff belongs to user {STRANGER}" in answer.stdout
    assert "program's file     settings.yaml" in answer.stdout


class TestAll:
    """Without --trust: everything on this host."""

    LAB = """
description: the machine that was recorded
extends: slurm
queues:
  debug: {ranges: [{max_nodes: 2, max_walltime: 30m}], source: the guide, date: 2026-10-01}
"""
    TRIAL = "echo sbatch: Job 7 to start at 1795781807 using 2 processors on nodes c1 in partition debug >&2"

    @pytest.fixture
    def look(self, castoff: Castoff, answering: Answers, tmp_path: Path) -> Callable[..., dict[str, Any]]:
        """What is found on the Slurm that was recorded, by what it is about."""

        def findings(*words: str, code: int = 0, **programs: str) -> dict[str, Any]:
            stand_ins = {"sbatch": self.TRIAL, "scancel": "exit 1", **programs}
            environ = answering(
                "slurm-accounting", **{name: line for name, line in stand_ins.items() if line}
            )
            path = tmp_path / ".castoff" / "sites" / "lab.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.LAB)
            site = [] if "--site" in words else ["--site", "lab"]
            answer = castoff("doctor", "--json", *site, *words, env=environ)
            assert answer.returncode == code, answer.stdout + answer.stderr
            found: dict[str, Any] = {}
            for line in answer.stdout.splitlines():
                one = json.loads(line)
                found.setdefault(one["about"], one)
            return found

        return findings

    def test_a_job_that_can_run(self, look: Callable[..., dict[str, Any]]) -> None:
        found = look("-A", "chem", "-t", "10m", "--", "sh", "-c", "true")
        assert found["scheduler"]["fact"].startswith("Slurm 22.05.8 answers in ")
        assert found["account"]["fact"].startswith("chem is one of ")
        assert found["queue"]["fact"] == "debug is up, up to 2 nodes for 00:30:00"
        started = "Job 7 to start at 2026-"
        assert started in found["job"]["fact"]
        assert {found[one]["status"] for one in ("scheduler", "account", "queue", "job")} == {"ok"}

    @pytest.mark.parametrize(
        ("words", "about", "fact", "remedy"),
        [
            (["-A", "chme"], "account", "chme is not an account of ", "--account chem"),
            (
                ["-q", "dbug"],
                "queue",
                "dbug does not exist here; there are: debug, gpu, long",
                "--queue debug",
            ),
            (["-q", "quiet"], "queue", "quiet starts no jobs now; its state is DOWN", "a job waits there"),
            (
                ["-q", "gpu", "--set", "nodes=3"],
                "queue",
                "gpu takes 2 nodes at most, and the job asks",
                "--nodes 2",
            ),
            (
                ["-q", "gpu", "-t", "3d"],
                "queue",
                "gpu takes 48:00:00 at most, and the job asks for 72:00:00",
                "--walltime 48:00:00",
            ),
        ],
    )
    def test_what_a_job_may_get_wrong(
        self,
        look: Callable[..., dict[str, Any]],
        words: list[str],
        about: str,
        fact: str,
        remedy: str,
    ) -> None:
        found = look(*words, code=1)[about]
        assert found["status"] == "problem" and found["fact"].startswith(fact), found
        assert found["remedy"].startswith(remedy)

    def test_what_a_site_and_sbatch_refuse(self, look: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
        (tmp_path / "job.yaml").write_text("nodes: 3\nqueue: debug\ncommand: ['true']\n")
        found = look("job.yaml", code=1)
        assert found["job"]["fact"].startswith("job.yaml:2: queue is 'debug', which does not take 3 nodes")
        words = "echo sbatch: error: Batch job submission failed: a filter says no >&2; exit 1"
        found = look("--", "true", code=1, sbatch=words)
        assert found["job"]["status"] == "problem" and "a filter says no" in found["job"]["fact"]

    def test_a_scheduler_that_hangs_refuses_or_is_not_here(
        self, look: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = look(code=1, scontrol="echo connection refused >&2; exit 1")["scheduler"]
        assert found["status"] == "problem" and "connection refused" in found["fact"]
        found = look("--site", "pbs", code=1)["scheduler"]
        assert found["status"] == "problem" and found["fact"].startswith("qsub is not on PATH here")
        monkeypatch.setattr("castoff.launcher.diagnosis.scheduling.PATIENCE", 0.2)
        found = look(code=1, scontrol="exec sleep 1000")["scheduler"]
        assert "scontrol gave no answer within 0.2 s" in found["fact"]
        assert "castoff can submit nothing until `scontrol " in found["remedy"]

    def test_a_profile_that_the_scheduler_contradicts(self, look: Callable[..., dict[str, Any]]) -> None:
        found = look()["profile"]
        assert found["status"] == "warning" and found["fact"].startswith("array.max_count: lab has 1001")
        assert found["remedy"] == "castoff sites check lab --update"
        assert "knows nothing of this machine's queues" in look("--site", "slurm")["profile"]["fact"]

    def test_runs_and_files(self, castoff: Castoff, tmp_path: Path) -> None:
        """A listed run that is gone, a submission that was interrupted, a program that is missing."""
        words = ("doctor", "--site", "local", "--", "python", "train.py")
        castoff("submit", "--site", "local", "--", "true")
        castoff("wait")
        (run,) = (tmp_path / "castoff-runs").glob("true-*")
        run.rename(tmp_path / "castoff-runs" / f".{run.name}.draft")
        answer = castoff(*words)
        assert answer.returncode == 1
        assert (
            f"warning  index      1 of 1 listed runs have no directory now, for example {run}\n"
            in answer.stdout
        )
        assert "warning  locks      1 interrupted submissions or removals in " in answer.stdout
        assert f"problem  files      command.1 is 'train.py', which is not in {tmp_path}\n" in answer.stdout
        assert answer.stdout.splitlines()[-1].startswith("1 problem, ")

    def test_words_that_are_wrong(self, castoff: Castoff) -> None:
        for words, says in (
            (("--nodes", "two"), "--nodes is 'two', but takes a number of nodes, as in --nodes 2"),
            (("--nodes", "0"), "--nodes is '0'"),
            (("-N", "2"), "no option -N"),
            (("--trust", "--nodes", "2"), "--trust excludes --nodes"),
            (("train.py",), "-- python train.py"),
        ):
            answer = castoff("doctor", "--site", "local", *words)
            assert answer.returncode == 2 and says in answer.stderr, answer.stderr

    @pytest.mark.costly
    @pytest.mark.usefixtures("for_real")
    def test_the_ranks_of_this_host(self, castoff: Castoff) -> None:
        """Where castoff itself runs jobs, one host is tried as well, and no other."""
        answer = castoff("doctor", "--site", "local", "--nodes", "1", "--json")
        assert answer.returncode == 0, answer.stdout
        found = {one["about"]: one for one in map(json.loads, answer.stdout.splitlines())}
        assert found["all-reduce"]["fact"].startswith("exact on 1 rank; ") and "preflight" not in found
        answer = castoff("doctor", "--site", "local", "--nodes", "2")
        assert answer.returncode == 1
        assert (
            "problem  nodes      no job was submitted; castoff-doctor on local: nodes: is 2" in answer.stdout
        )

    def test_trust_is_one_section_of_it(self, castoff: Castoff, project: Path) -> None:
        give_away(project / "run.sh")
        answer = castoff("doctor", "job.yaml", "--site", "local")
        assert answer.returncode == 1
        assert f"problem  trust      program run.sh: {project}/run.sh belongs to " in answer.stdout
        (project / "job.yaml").chmod(0o666)
        answer = castoff("doctor", "job.yaml", "--site", "local")
        assert answer.returncode == 1
        assert answer.stdout.startswith("problem  job        job.yaml: is not used, since ")
