"""Scripts that are asked to stop, resubmitted, or led astray: what they do by themselves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import CastoffError
from launcher.runs.run import Run, ask_to_stop
from launcher.submission.resubmit import resubmit
from tests import patience
from tests.mounts import mount_small, with_mounts

from ..conftest import give_away
from .conftest import Benches
from .harness import Bench

KINDS = ["local", "hydra", "pals", "srun"]
DIRECTORY = {"hydra": "castoff-7.head", "pals": "castoff-7.head", "srun": "castoff-12"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("requeue", [0, 2])
def test_asked_to_stop(kind: str, requeue: int, bench: Benches) -> None:
    """It ends with `again`, and nobody starts it again."""
    here = bench(kind)
    running = here.start(ranks_per_node=2, requeue={"max": requeue}, env={"PROBE": "stop"})
    running.wait_for("ready", 2)
    ask_to_stop(Run(here.run_dir()))
    ended = running.end()
    assert (ended.code, ended.ending) == (75, ("again", 75)), ended.output
    assert here.calls("qsub") == [] and ["requeue", "12"] not in here.calls("scontrol")
    assert not (ended.run_dir / "attempts" / "0.0" / "requeue").exists()


@pytest.mark.parametrize("kind", ["hydra", "pals", "srun"])
def test_stopped_before_it_began(kind: str, bench: Benches) -> None:
    """As a job that waits in the queue, or a requeued one."""
    here = bench(kind)
    (here.folder / DIRECTORY[kind]).mkdir()
    (here.folder / DIRECTORY[kind] / "stop").touch()
    ended = here.run(ranks_per_node=1)
    assert (ended.code, ended.ending) == (143, ("cancelled", 143))
    assert "castoff: stopped before it began; castoff resubmit starts it again" in ended.output
    assert here.ranks() == []


def test_stopped_then_cancelled(bench: Benches) -> None:
    here = bench("srun")
    running = here.start(ranks_per_node=1, env={"PROBE": "wait again"})
    running.wait_for("ready", 1)
    ask_to_stop(Run(here.run_dir()))
    running.wait_for("stopping", 1)
    running.process.send_signal(signal.SIGTERM)
    assert running.end().ending == ("cancelled", 143)


def test_requeues_count_from_the_first_attempt_of_a_submission(bench: Benches) -> None:
    here = bench("srun")
    run_dir = here.run(requeue={"max": 1}, env={"PROBE": "fail 0 3"}).run_dir
    told = {"PROBE": "outcome again", "CASTOFF_RUN_DIR": str(run_dir)}
    told |= {"CASTOFF_ATTEMPT": "1", "CASTOFF_FIRST_ATTEMPT": "1"}
    codes = [
        here.run(requeue={"max": 1}, env={**told, "SLURM_RESTART_COUNT": str(restarts)}).code
        for restarts in range(2)
    ]
    assert codes == [0, 75]
    assert here.ranks()[0]["environ"]["CASTOFF_ATTEMPT"] == "2"


def test_a_copy_of_a_pbs_job_is_told_where_counting_began(bench: Benches) -> None:
    here = bench("pals")
    run_dir = here.run(ranks_per_node=1, requeue={"max": 1}, env={"PROBE": "fail 0 3"}).run_dir
    told = {"CASTOFF_RUN_DIR": str(run_dir), "CASTOFF_ATTEMPT": "1", "CASTOFF_FIRST_ATTEMPT": "1"}
    ended = here.run(ranks_per_node=1, requeue={"max": 1}, env={"PROBE": "outcome again", **told})
    assert (ended.code, ended.record("ending", "0.1")["ending"]) == (0, "again")
    assert "CASTOFF_FIRST_ATTEMPT" in here.calls("qsub")[0][1].split(",")


class TestPlanted:
    """What stands where the script's directory belongs."""

    ALIEN = "{} is a link or somebody else's, so nothing is written there"

    def refused(self, here: Bench, path: Path, why: str = ALIEN, **env: str) -> None:
        running = here.start(ranks_per_node=1, env=env)
        output, _ = running.process.communicate(timeout=patience.SECONDS)
        assert running.process.returncode == 1
        assert f"castoff: {why.format(path)}\n" in output
        assert here.ranks() == []

    @pytest.mark.parametrize("kind", ["hydra", "pals", "srun"])
    @pytest.mark.parametrize("target", ["there", "nowhere"])
    def test_a_link(self, kind: str, target: str, bench: Benches) -> None:
        here = bench(kind)
        (here.seen.parent / "there").mkdir()
        planted = here.folder / DIRECTORY[kind]
        planted.symlink_to(here.seen.parent / target)
        self.refused(here, planted)
        assert list((here.seen.parent / "there").iterdir()) == []
        assert not (here.seen.parent / "nowhere").exists()

    def test_somebody_else_s(self, bench: Benches) -> None:
        here = bench("srun")
        planted = here.folder / DIRECTORY["srun"]
        planted.mkdir()
        give_away(planted)
        self.refused(here, planted)
        assert list(planted.iterdir()) == []

    @pytest.mark.parametrize("mode", [0o775, 0o1777, 0o702])
    def test_open_for_others_to_write_to(self, mode: int, bench: Benches) -> None:
        here = bench("srun", folder="a folder")
        planted = here.folder / DIRECTORY["srun"]
        planted.mkdir()
        planted.chmod(mode)
        why = (
            f"{{0}}: others may write to it (mode {mode:o}), so what it says may be theirs; if you trust it, "
        )
        self.refused(here, planted, why + "chmod go-w " + str(planted).replace(" ", "\\ "))
        assert list(planted.iterdir()) == []

    def test_made_in_a_folder_that_is_everybodys(self, bench: Benches) -> None:
        here = bench("srun")
        here.folder.chmod(0o2777)
        before = os.umask(0)
        try:
            assert here.run(ranks_per_node=1).code == 0
        finally:
            os.umask(before)
        assert here.run_dir().stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("kind", ["link", "theirs"])
    def test_named_by_a_submission(self, kind: str, bench: Benches) -> None:
        here = bench("srun")
        ended = here.run(ranks_per_node=1)
        before = sorted(ended.run_dir.rglob("*"))
        planted = here.seen.parent / "planted"
        if kind == "link":
            planted.symlink_to(ended.run_dir)
        else:
            planted.mkdir()
            shutil.copy(here.folder / "job.sh", planted)
            give_away(planted)
        for path in here.seen.iterdir():
            path.unlink()
        self.refused(here, planted, CASTOFF_RUN_DIR=str(planted))
        assert sorted(ended.run_dir.rglob("*")) == before


@pytest.mark.parametrize("code", [0, 5])
@pytest.mark.parametrize("kind", ["hydra", "srun"])
def test_a_directory_that_is_deleted_while_it_runs(kind: str, code: int, bench: Benches) -> None:
    """The exit code still says how it ended; of a failure it is the starter's, as nothing else is left."""
    here = bench(kind)
    running = here.start(ranks_per_node=1, command=["sh", "-c", f'rm -r "$CASTOFF_RUN_DIR"; exit {code}'])
    output, _ = running.process.communicate(timeout=patience.SECONDS)
    assert (running.process.returncode == 0) == (code == 0), output


@pytest.mark.parametrize(("code", "ending"), [(0, "done"), (3, "failed")])
@pytest.mark.parametrize("kind", ["hydra", "srun"])
def test_a_disk_that_fills_up(kind: str, code: int, ending: str, bench: Benches, tmp_path: Path) -> None:
    here = bench(kind)

    def test() -> None:
        (here.folder / DIRECTORY[kind]).mkdir()
        mount_small(here.folder / DIRECTORY[kind], "size=100k,mode=700")
        program = f'cat /dev/zero >"$CASTOFF_RUN_DIR/fill" 2>/dev/null; exit {code}'
        ended = here.run(ranks_per_node=1, command=["sh", "-c", program])
        assert ended.ending == (ending, ended.code), ended.output
        assert (ended.code == 0) == (code == 0)

    with_mounts(tmp_path, test)


SUBMITTER = f"""#!{sys.executable}
# Stands in for qsub: runs the script at once, with what the real one would hand on.
import json, os, re, shutil, subprocess, sys
job = json.loads(os.environ["STUB_JOB"])
script = sys.argv[-1]
words = " ".join(sys.argv[1:-1])
names = re.search(r"-v (\\S+)", words).group(1).split(",")
array = re.search(r"-J (\\S+)", words)
environ = {{**job, **{{name: os.environ[name] for name in names}}}}
environ["PBS_O_WORKDIR"] = os.getcwd()
members = [None]
if array:
    members = []
    for part in array.group(1).partition("%")[0].split(","):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        if not int(first) < int(last):
            sys.exit("qsub: Illegal -J value")
        members += range(int(first), int(last or first) + 1, int(step or 1))
shutil.copy(script, os.environ["STUB_SPOOL"])
for member in members:
    if member is not None:
        environ["PBS_ARRAY_INDEX"] = str(member)
    with open(os.devnull, "w") as nowhere:
        subprocess.run(["bash", os.environ["STUB_SPOOL"]], env=environ, check=False, stdout=nowhere)
with open(os.environ["STUB_CALLS_OF_QSUB"], "a") as calls:
    print(words, file=calls)
print("8.head")
"""


def submit_again(here: Bench, run: Run, monkeypatch: pytest.MonkeyPatch, **env: str) -> list[str]:
    """Resubmit a run whose script stood alone on PBS; what qsub was called with."""
    here.stub("qsub", SUBMITTER)
    here.stub("qstat", """#!/bin/sh\necho "qstat: Unknown Job Id $5" >&2; exit 153\n""")
    here.stub("qselect", "#!/bin/sh\n")
    job = {**os.environ, **here._scheduler(), "PROBE_FOLDER": str(here.seen), **env}
    calls = here.seen.parent / "calls-of-qsub"
    outside = {"PATH": f"{here.bin}:{os.environ['PATH']}", "STUB_JOB": json.dumps(job), **env}
    outside |= {"STUB_SPOOL": str(here.seen.parent / "spooled"), "STUB_CALLS_OF_QSUB": str(calls)}
    for name, value in outside.items():
        monkeypatch.setenv(name, value)
    resubmit(run)
    return calls.read_text().splitlines()


def test_submitted_again(bench: Benches, monkeypatch: pytest.MonkeyPatch) -> None:
    here = bench("hydra", folder="a 'folder'")
    asked: dict[str, Any] = {"requeue": {"max": 1}, "inherit": ["LANG"], "env_from": ["TOKEN"]}
    given = {"LANG": "C", "TOKEN": "t"}
    ended = here.run(ranks_per_node=1, **asked, env={"PROBE": "fail 0 3", **given})
    run = Run(ended.run_dir)
    ask_to_stop(run)
    (words,) = submit_again(here, run, monkeypatch, **given)
    assert words == "-f -v LANG,TOKEN,CASTOFF_RUN_DIR,CASTOFF_ATTEMPT,CASTOFF_FIRST_ATTEMPT"
    assert sorted(path.name for path in (run.path / "attempts").iterdir()) == ["0.0", "0.1"]
    assert ended.record("ending", "0.1")["ending"] == "done"
    told = here.ranks()[0]["environ"]
    assert (told["CASTOFF_ATTEMPT"], told["CASTOFF_FIRST_ATTEMPT"], told["TOKEN"]) == ("1", "1", "t")
    assert told["CASTOFF_RUN_DIR"] == str(run.path) and not (run.path / "stop").exists()


def test_members_submitted_again(bench: Benches, monkeypatch: pytest.MonkeyPatch) -> None:
    """Member 0 is done, 1 and 2 have failed once, 3 twice, 4 and 6 never began, 5 is done."""
    here = bench("hydra")
    probes = [(0, "outcome done"), *((member, "fail 0 3") for member in (1, 2, 3, 3)), (5, "outcome done")]
    for member, probe in probes:
        here.array_index = member
        ended = here.run(ranks_per_node=1, array={"count": 7, "at_most": 2}, env={"PROBE": probe})
    lines = submit_again(here, Run(ended.run_dir), monkeypatch)
    made = {path.name for path in (ended.run_dir / "attempts").iterdir()}
    assert made == {"0.0", "1.0", "2.0", "3.0", "3.1", "5.0", "1.1", "2.1", "3.2", "4.0", "6.0"}
    assert [line.rpartition("-J ")[2] for line in lines] == ["1-2%2", "3-4:2", "4-5:2", "6-7:2"]


def test_nothing_to_submit_again(bench: Benches) -> None:
    here = bench("srun")
    ended = here.run(ranks_per_node=1)
    with pytest.raises(CastoffError, match="it is done; with --done-too it starts again"):
        resubmit(Run(ended.run_dir))
    local = bench("local", folder="local")
    ended = local.run(env={"PROBE": "fail 0 3"})
    with pytest.raises(CastoffError, match=r"plan\.json or submission\.json is missing or damaged"):
        resubmit(Run(ended.run_dir))
