"""Runs on Flux: what is asked, sent and ended, where `flux` answers as a real one did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from castoff import JobSpec, Site, submit
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.base_queue import Queue
from castoff.launcher.schedulers.flux.jobs import f58
from castoff.launcher.schedulers.flux.scheduler import SCHEDULER
from castoff.launcher.status.watch import status
from castoff.launcher.submission.cancel import end
from castoff.launcher.submission.resubmit import resubmit
from castoff.launcher.submission.send import NotSent

ANSWERS = Path(__file__).parents[2] / "answers" / "flux"

_FLUX = """\
#!/bin/sh
PATH=/usr/bin:/bin
for word; do printf '[%s]' "$word"; done >>{folder}/asked; echo >>{folder}/asked
case $1 in
  batch) echo "$PWD" >{folder}/from; {batch} ;;
  jobs) {jobs} ;;
  cancel) {cancel} ;;
  getattr) echo / ;;
esac
"""


class FakeFlux:
    """A program called flux."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.folder.mkdir()
        self.says = {"batch": "echo f4sxkcFRH", "jobs": "echo '{\"jobs\": []}'", "cancel": "true"}
        self.program()

    def program(self, **says: str) -> None:
        """What it does from now on."""
        self.says |= says
        path = self.folder / "flux"
        path.write_text(_FLUX.format(folder=self.folder, **self.says))
        path.chmod(0o755)

    def tells(self, name: str, *, errors: str | None = None, code: int = 0) -> None:
        """`flux jobs` answers with a recording."""
        err = f"cat {ANSWERS / errors} >&2; " if errors else ""
        self.program(jobs=f"{err}cat {ANSWERS / name}; exit {code}")

    def asked(self) -> list[str]:
        """The words of each call since the last time."""
        path = self.folder / "asked"
        found = path.read_text().splitlines() if path.exists() else []
        path.write_text("")
        return found


@pytest.fixture
def flux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeFlux:
    fake = FakeFlux(tmp_path / "flux")
    monkeypatch.setenv("PATH", f"{fake.folder}:/usr/bin:/bin")
    return fake


@pytest.fixture
def queue(flux: FakeFlux) -> Queue:
    return SCHEDULER.queue()


def submitted(folder: Path, **fields: Any) -> RunDirectory:
    job = JobSpec.of({"command": ["true"], "walltime": "5m", **fields})
    return submit(job, Site.load("flux"), runs_dir=folder / "runs")


class TestSubmission:
    def test_the_command(self, flux: FakeFlux, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KEY", "secret")
        monkeypatch.chdir(tmp_path)
        run = submitted(tmp_path, env_from=["KEY"])
        assert run.job == "8563980238848", "f4sxkcFRH as a number"
        *_, command = [line for line in flux.asked() if line.startswith("[batch]")]
        assert command == (
            f"[batch][--cwd={run.path}][--output={run.path}/logs/job-0.log][--setopt=output.mode=append]"
            f"[--env-remove=KEY][--env=CASTOFF_RUN_DIR][--env=CASTOFF_SUBMITTED_FROM=$PWD][{run.script}]"
        )
        assert (flux.folder / "from").read_text() == f"{tmp_path}\n"

    def test_what_flux_refuses_was_never_sent(self, flux: FakeFlux, tmp_path: Path) -> None:
        said = "flux-batch: ERROR: Invalid queue 'nosuch' specified"
        flux.program(batch=f'echo "{said}" >&2; exit 1')
        with pytest.raises(NotSent, match="Invalid queue"):
            submitted(tmp_path)

    def test_a_connection_that_broke_may_have_sent_it(self, flux: FakeFlux, tmp_path: Path) -> None:
        record = json.loads((ANSWERS / "one.json").read_text())
        script = (
            'for last; do :; done; echo "flux-batch: ERROR: Connection reset by peer" >&2; '
            f'dirname "$last" >{flux.folder}/cwd; exit 1'
        )
        text = json.dumps({"jobs": [{**record, "cwd": "CWD"}]})
        (flux.folder / "answer").write_text(text)
        flux.program(batch=script, jobs=f'sed "s#CWD#$(cat {flux.folder}/cwd)#" {flux.folder}/answer')
        assert submitted(tmp_path).job == str(record["id"])
        assert any(line == "[jobs][--json][--count=0][-a][--name=true]" for line in flux.asked())

    def test_a_chain_waits_link_by_link(self, flux: FakeFlux, tmp_path: Path) -> None:
        submitted(tmp_path, requeue={"max": 2, "how": "chain"})
        sent = [line for line in flux.asked() if line.startswith("[batch]")]
        waits = [[word for word in line.split("][") if word.startswith("--dependency")] for line in sent]
        assert waits == [[], *2 * [["--dependency=afternotok:8563980238848"]]]
        assert all("[--env=CASTOFF_CHAIN]" in line for line in sent)

    @pytest.mark.parametrize("name", ["a{{b", "a\nb"])
    def test_a_run_directory_that_flux_would_read_otherwise(self, name: str) -> None:
        with pytest.raises(CastoffError, match="choose another folder"):
            SCHEDULER.check_run_dir(f"/runs/{name}")


class TestQuestions:
    def test_jobs_that_are_known(self, flux: FakeFlux, queue: Queue) -> None:
        flux.tells("jobs.json")
        jobs = {str(one["id"]) for one in json.loads((ANSWERS / "jobs.json").read_text())["jobs"]}
        answer = queue.ask(jobs)
        assert {job for job, _ in answer.jobs} == jobs and answer.silence is None and not answer.unanswered
        assert flux.asked() == ["[jobs][--json]" + "".join(f"[{job}]" for job in sorted(jobs, key=int))]

    def test_one_that_is_unknown(self, flux: FakeFlux, queue: Queue) -> None:
        one = str(json.loads((ANSWERS / "one.json").read_text())["id"])
        flux.tells("one-of-two.json", errors="one-of-two.err")
        answer = queue.ask([one, "123456"])
        assert {job for job, _ in answer.jobs} == {one} and answer.silence is None and not answer.unanswered

    def test_none_that_is_known(self, flux: FakeFlux, queue: Queue) -> None:
        flux.tells("unknown.json", errors="unknown.err", code=1)
        answer = queue.ask(["123456"])
        assert not answer.jobs and answer.silence is None and not answer.unanswered

    def test_a_job_that_is_left_out_is_not_unknown(self, flux: FakeFlux, queue: Queue) -> None:
        one = str(json.loads((ANSWERS / "one.json").read_text())["id"])
        flux.tells("one.json")
        answer = queue.ask([one, "77"])
        assert {job for job, _ in answer.jobs} == {one} and list(answer.unanswered) == ["77"]

    def test_an_instance_that_does_not_answer(self, flux: FakeFlux, queue: Queue) -> None:
        flux.program(jobs="echo 'flux-jobs: ERROR: Unable to connect to Flux' >&2; exit 1")
        assert "Unable to connect to Flux" in (queue.ask(["1"]).silence or "")
        assert queue.find("/runs/a/job.sh", "a", 0.0) is None

    def test_another_instance_has_ids_of_its_own(self, queue: Queue) -> None:
        assert queue.elsewhere(["/"]) is None
        assert "the Flux instance /ƒ7QUq3WP, and this is /" in (queue.elsewhere(["/ƒ7QUq3WP"]) or "")

    def test_status_of_a_run(self, flux: FakeFlux, tmp_path: Path) -> None:
        run = submitted(tmp_path)
        held = json.loads((ANSWERS / "jobs.json").read_text())["jobs"][8]
        info = {**held, "id": int(run.job or 0), "cwd": str(run.path)}
        (flux.folder / "answer").write_text(json.dumps(info))
        flux.program(jobs=f"cat {flux.folder}/answer")
        now = status(run)
        assert now.state == "pending" and "it is held" in (now.reason or "")

    def test_one_in_an_unknown_state_is_neither_waiting_nor_gone(
        self, flux: FakeFlux, tmp_path: Path
    ) -> None:
        run = submitted(tmp_path)
        held = json.loads((ANSWERS / "jobs.json").read_text())["jobs"][8]
        info = {**held, "id": int(run.job or 0), "cwd": str(run.path), "status": "SINGING"}
        (flux.folder / "answer").write_text(json.dumps(info))
        flux.program(jobs=f"cat {flux.folder}/answer")
        flux.asked()
        now = status(run)
        assert (now.state, now.over) == ("unknown", False) and "as SINGING, a state" in (now.reason or "")
        with pytest.raises(CastoffError, match="members that may be running are not restarted"):
            resubmit(run)
        assert not any("[batch]" in one for one in flux.asked())


class TestCancelling:
    def test_what_flux_refuses_is_reported_of_its_job(self, flux: FakeFlux, queue: Queue) -> None:
        done = str(json.loads((ANSWERS / "jobs.json").read_text())["jobs"][0]["id"])
        flux.program(cancel=f"cat {ANSWERS / 'cancel.err'} >&2; exit 1")
        refused = queue.cancel([done, "26006127640577"])
        assert list(refused) == [done] and "job is inactive" in refused[done]
        assert flux.asked() == [f"[cancel][{f58(done)}][{f58('26006127640577')}]"]

    def test_of_a_run(self, flux: FakeFlux, tmp_path: Path) -> None:
        run = submitted(tmp_path)
        info = json.loads((ANSWERS / "jobs.json").read_text())["jobs"]
        place = {"id": int(run.job or 0), "cwd": str(run.path)}
        for name, job in (("before", info[8]), ("after", info[9])):
            (flux.folder / name).write_text(json.dumps({"jobs": [{**job, **place}]}))
        flux.program(jobs=f"cat {flux.folder}/before", cancel=f"cp {flux.folder}/after {flux.folder}/before")
        end([run])
        assert f"[cancel][{f58(run.job or '0')}]" in flux.asked()
        assert status(run).ending == "cancelled"
