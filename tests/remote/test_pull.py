"""castoff pull: a run's files come from a machine, over a real sshd, each complete or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.remote.conftest import Laptop

RESULTS = """
import os, pathlib
run = pathlib.Path(os.environ["CASTOFF_RUN_DIR"])
(run / "figures").mkdir()
(run / "figures" / "loss.csv").write_text("1,2\\n")
(run / "latest").symlink_to("figures/loss.csv")
with open(run / "model.pt", "wb") as file:
    file.truncate(300 << 20)
pathlib.Path("out").mkdir(exist_ok=True)
pathlib.Path("out/accuracy.txt").write_text("0.9\\n")
print("trained")
"""


def finished(laptop: Laptop, *words: str) -> tuple[str, Path]:
    """A run that is over, and its directory."""
    facts = laptop.submitted("far", "submit", *words)
    assert laptop("--on", "far", "wait", str(facts["id"])).returncode == 0
    return str(facts["id"]), Path(str(facts["directory"]))


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def test_logs_metrics_and_results_come_and_only_once(laptop: Laptop) -> None:
    laptop.add("far")
    laptop.write("train.py", RESULTS)
    laptop.commit()
    run, there = finished(laptop, "--", "python3", "train.py")
    first = laptop("--on", "far", "pull", run)
    assert first.returncode == 0, first.stderr
    here = laptop.project / run
    left_out = {"model.pt", "latest", "local.lock"}
    assert files(here) == files(there) - left_out
    assert "model.pt: is larger than 256.0 MiB (300.0 MiB)" in first.stderr
    assert "latest: is a link" in first.stderr
    assert (here / "logs/job-0.log").read_bytes() == (there / "logs/job-0.log").read_bytes()
    assert here.stat().st_mode & 0o777 == 0o700 and (here / "job.yaml").stat().st_mode & 0o077 == 0

    again = json.loads(laptop("--on", "far", "pull", run, "--json").stdout)
    assert again["fetched"] == [] and again["unchanged"] == len(files(here))
    assert {one["name"] for one in again["missing"]} == {"model.pt", "latest"}

    (there / "figures/loss.csv").write_text("1,2\n3,4\n")
    changed = json.loads(laptop("--on", "far", "pull", run, "--json").stdout)
    assert changed["fetched"] == ["figures/loss.csv"]
    assert (here / "figures/loss.csv").read_text() == "1,2\n3,4\n"
    assert "trained" in laptop("--on", "local", "logs", f"./{run}").stdout
    assert laptop("--on", "local", "report", f"./{run}", "-o", "page.html").returncode == 0


@pytest.mark.costly
def test_a_pattern_is_one_of_the_run_directory_or_the_working_directory(laptop: Laptop) -> None:
    laptop.add("far")
    laptop.write("train.py", RESULTS)
    laptop.commit()
    run, _ = finished(laptop, "--", "python3", "train.py")
    pulled = laptop("--on", "far", "pull", run, "out", "*.none", "latest", "-o", "here")
    assert pulled.returncode == 1
    assert f"{run}: no file matches *.none, in the run directory or the job's" in pulled.stderr
    assert files(laptop.project / "here") == {"workdir/out/accuracy.txt", "latest"}
    assert (laptop.project / "here/latest").read_text() == "1,2\n"


@pytest.mark.costly
def test_members_and_groups(laptop: Laptop) -> None:
    laptop.add("far")
    laptop.write("jobs.yaml", "name: two\njobs:\n  a: {command: [echo, a]}\n  b: {command: [echo, b]}\n")
    laptop.write("sweep.yaml", "name: sweep\ncommand: [echo, '{lr}']\narray: {parameters: {lr: [1, 2, 3]}}\n")
    laptop.commit()
    finished(laptop, "sweep.yaml")
    assert laptop("--on", "far", "pull", "sweep:2", "lr=1", "logs", "-o", "part").returncode == 0
    assert {name.partition(".")[0] for name in files(laptop.project / "part/logs")} >= {"job-0", "job-2"}
    assert not [name for name in files(laptop.project / "part/logs") if name.startswith(("job-1", "1."))]
    assert laptop("--on", "far", "submit", "jobs.yaml").returncode == 0
    assert laptop("--on", "far", "wait", "two").returncode == 0
    pulled = json.loads(laptop("--on", "far", "pull", "two", "job.sh", "--json").stdout)
    assert sorted(name.partition("-")[0] for name in pulled["fetched"]) == ["a", "b"]
    assert len(files(Path(pulled["directory"]))) == 2


@pytest.mark.costly
def test_a_file_continues_where_the_connection_broke(laptop: Laptop) -> None:
    """By the same command, and without it, since pull connects again."""
    laptop.add("far", "broken")
    laptop.a_job()
    run, there = finished(laptop, "--", "true")
    content = os.urandom(6_000_000)
    (there / "weights").write_bytes(content)
    laptop.machine.order_link("cut-back 4000000")
    pulling = laptop.start("--on", "far", "pull", run, "-o", "here")
    assert pulling.stderr is not None
    assert "the connection broke, and the runs are unaffected" in pulling.stderr.readline()
    pulling.kill()
    pulling.communicate()
    here = laptop.project / "here"
    (draft,) = (path for path in (here / ".castoff-pull").iterdir() if path.stat().st_size)
    arrived = draft.stat().st_size
    assert 1_000_000 <= arrived < len(content) and not (here / "weights").exists()

    laptop.machine.order_link("cut-back 99000000")
    assert laptop("--on", "far", "pull", run, "-o", "here").returncode == 0
    assert (here / "weights").read_bytes() == content and not (here / ".castoff-pull").exists()
    passed = int((laptop.machine.folder / "link.passed").read_text().split()[1])
    assert passed < len(content) - arrived + 200_000
