"""`castoff watch`: what jobs could not send, once, to a server that may not be well."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher import clock
from castoff.launcher.errors import CastoffError
from castoff.launcher.notify.watching import Watcher, alone
from castoff.launcher.process.locks import locked
from castoff.launcher.runs import notices
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import LOCK, RunDirectory
from tests import patience
from tests.clock import Clock

from ..conftest import Castoff, LocalJobs
from ..scripts.machine import part
from .conftest import SECRET, Server


class Runs:
    """Run directories made by hand, as the local scheduler leaves them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.said: list[str] = []

    def made(
        self, run_id: str, endings: dict[int, str | None], group: str | None = None, **notify: Any
    ) -> RunDirectory:
        """A run with a member for each ending; None: it never began, as one whose machine went down."""
        run = RunDirectory(self.folder / run_id)
        (run.path / "attempts").mkdir(parents=True)
        (run.path / "job.sh").touch()
        plan: dict[str, Any] = {"name": run_id, "site": "here", "scheduler": "local"}
        plan |= {"array_count": len(endings) if len(endings) > 1 else None}
        plan |= {"notify": {"on": ["end", "fail"], "to": ["phone"], **notify}}
        self.write(run, "plan.json", plan)
        self.write(run, "submission.json", {"job": "local-1", "group": group, "time": time.time()})
        for member, ending in endings.items():
            if ending is not None:
                self.attempt(run, f"{member}.0", ending)
        Index.of(os.environ).add(run, run_id, group=group)
        return run

    def attempt(self, run: RunDirectory, name: str, ending: str) -> None:
        folder = run.path / "attempts" / name
        folder.mkdir()
        self.write(folder, "start.json", {"job": "x", "host": "n1", "time": time.time() - 60})
        code = int(ending != "done")
        if ending == "failed":
            self.write(folder, "failure.json", {"code": 1, "rank": 3, "host": "n1", "log": "rank-00003.log"})
            logs = run.path / "logs" / name
            logs.mkdir(parents=True)
            (logs / "rank-00003.log").write_text(
                "Traceback (most recent call last):\n  x\nKeyError: 'lr'\nbye\n"
            )
        if ending != "running":
            self.write(folder, "ending.json", {"ending": ending, "code": code, "time": time.time()})
            (folder / "settled").touch()

    def write(self, where: RunDirectory | Path, name: str, record: Any) -> None:
        ((where if isinstance(where, Path) else where.path) / name).write_text(json.dumps(record))

    def watcher(self, **given: Any) -> Watcher:
        return Watcher(os.environ, say=self.said.append, **given)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_what_ended_without_a_word(runs: Runs, server: Server, waits: Clock) -> None:
    run = runs.made("train", {0: "failed"})
    runs.watcher().watch()
    (got,) = server.got
    assert (got["title"], got["event"], got["run"]) == ("train: failed", "end", run.id)
    assert got["reason"] == "KeyError: 'lr'; rank 3 on n1 failed first: exit code 1"
    assert got["text"].endswith("\nhere, after 60s: castoff status train")
    runs.watcher().watch()
    assert len(server.got) == 1, "another watcher finds it sent"
    assert [line.split(" ", 1)[1] for line in runs.said] == ["phone: train: failed"]
    assert not [path for path in run.path.rglob("*") if path.is_file() and SECRET in path.read_text()]


@pytest.mark.parametrize(
    ("ending", "sent"), [("walltime", 1), ("cancelled", 0), ("done", 0), ("node-failure", 1)]
)
def test_a_cancelled_run_has_not_failed(
    ending: str, sent: int, runs: Runs, server: Server, waits: Clock
) -> None:
    runs.made("train", {0: ending}, on=["fail"])
    runs.watcher().watch()
    assert len(server.got) == sent


def test_a_run_that_is_lost(runs: Runs, server: Server, waits: Clock) -> None:
    runs.made("train", {0: None})
    runs.watcher().watch()
    assert server.got[0]["title"] == "train: unknown"


def test_it_watches_until_no_run_is_left(runs: Runs, server: Server, waits: Clock) -> None:
    watcher, other = runs.watcher(), runs.made("other", {0: "running"})
    with locked(other.path / LOCK):
        assert watcher.look() and server.got == []
        runs.made("later", {0: "done"})
        assert watcher.look() and [got["title"] for got in server.got] == ["later: done"]
    (other.path / "attempts/0.0/ending.json").write_text('{"ending": "done", "code": 0}')
    (other.path / "attempts/0.0/settled").touch()
    assert not watcher.look() and len(server.got) == 2
    assert not watcher.look() and len(server.got) == 2


def test_old_runs_are_left_alone(runs: Runs, server: Server, waits: Clock, castoff: Castoff) -> None:
    run = runs.made("train", {0: "done"})
    ending = run.path / "attempts/0.0/ending.json"
    ending.write_text(json.dumps({"ending": "done", "code": 0, "time": time.time() - 90000}))
    assert castoff("list").returncode == 0  # the index then knows that it is over
    runs.watcher().watch()
    assert server.got == []
    runs.watcher(only=[run.path]).watch()
    assert len(server.got) == 1, "unless somebody asks for it"


def test_an_array_sends_its_first_failure_and_its_end(runs: Runs, server: Server, waits: Clock) -> None:
    run = runs.made("sweep", {0: "done", 1: "failed", 2: "running"})
    watcher = runs.watcher()
    with locked(run.path / LOCK):
        assert watcher.look() and watcher.look()
        assert [got["title"] for got in server.got] == ["sweep: member 1: failed"]
    runs.write(run, "attempts/2.0/ending.json", {"ending": "walltime", "code": 1})
    (run.path / "attempts/2.0/settled").touch()
    assert not watcher.look()
    assert server.got[1]["title"] == "sweep: 1 of 3 done"
    assert server.got[1]["reason"] == "failed: 1; walltime: 2"


def test_a_group_is_one(runs: Runs, server: Server, waits: Clock, tmp_path: Path) -> None:
    group = "all-20261130-101500-1f2e"
    (tmp_path / "shared").mkdir()
    for name, ending in (("a", "done"), ("b", "failed")):
        run = runs.made(name, {0: ending}, group=group)
        (run.path / "notify").symlink_to(tmp_path / "shared")
    runs.watcher().watch()
    assert [(got["title"], got["reason"]) for got in server.got] == [(f"{group}: 1 of 2 done", "failed: b")]
    assert server.got[0]["command"] == f"castoff status {group}"


class TestFaults:
    def test_a_server_that_is_not_well_gets_it_later(self, runs: Runs, server: Server, waits: Clock) -> None:
        runs.made("train", {0: "done"})
        server.answers = [(500, {}), (429, {"Retry-After": "120"})]
        begun = clock.now()
        runs.watcher().watch()
        assert len(server.got) == 3 and 125 <= clock.now() - begun < 140
        assert "127.0.0.1 answered HTTP 500; again in 5 s" in runs.said[0]
        assert "HTTP 429; again in 120 s" in runs.said[1]

    def test_nobody_there(self, runs: Runs, server: Server, waits: Clock) -> None:
        run = runs.made("train", {0: "done"})
        server.close()
        begun = clock.now()
        runs.watcher().watch()
        assert 3000 < clock.now() - begun < 3700
        assert runs.said[-1].endswith(
            "phone: train: done: not sent: 127.0.0.1 cannot be reached: Connection refused"
        )
        (tries,) = notices.notices(run).values()
        assert tries.last.error == "127.0.0.1 cannot be reached: Connection refused"
        assert SECRET not in "".join(runs.said)

    def test_no_such_webhook_is_tried_once(
        self, runs: Runs, server: Server, waits: Clock, castoff: Castoff
    ) -> None:
        run = runs.made("train", {0: "done"}, to=["team", "phone"])
        runs.watcher().watch()
        assert len(runs.said) == 2 and "no webhook 'team'; there are: phone" in runs.said[0]
        shown = castoff("status", str(run.path)).stdout
        assert "team: not sent: no webhook 'team'" in shown and "phone: sent " in shown

    def test_a_wrong_url_is_tried_once(self, runs: Runs, server: Server, waits: Clock) -> None:
        runs.made("train", {0: "done"})
        server.answers = [(404, {})]
        runs.watcher().watch()
        assert len(server.got) == 1 and "not sent: 127.0.0.1 answered HTTP 404" in runs.said[0]

    def test_records_that_cannot_be_read_are_reported_once(
        self, runs: Runs, server: Server, waits: Clock
    ) -> None:
        runs.made("broken", {0: "done"})
        (runs.folder / "broken/plan.json").unlink()
        (runs.folder / "broken/plan.json").mkdir()
        runs.made("train", {0: "done"})
        runs.watcher().watch()
        assert [got["title"] for got in server.got] == ["train: done"]
        assert sum("broken" in line for line in runs.said) == 1


class TestOnce:
    """A message is sent by whoever makes its record."""

    def test_by_one_of_many_watchers_and_scripts(self, runs: Runs, server: Server) -> None:
        run = runs.made("train", {0: "done"})
        values = "declare -A castoff_values=([title]=x [seconds]=1 [priority]=3)\n"
        program = (
            part("setup", "notify") + part("notify", "notify") + values + "castoff_notify_once end phone\n"
        )
        scripts = [
            subprocess.Popen(["bash", "-c", program], env={**os.environ, "CASTOFF_RUN_DIR": str(run.path)})
            for _ in range(4)
        ]
        watchers = [threading.Thread(target=runs.watcher().look) for _ in range(4)]
        for watcher in watchers:
            watcher.start()
        for watcher in watchers:
            watcher.join()
        assert [script.wait() for script in scripts] == [0] * 4
        assert len(server.got) == 1

    def test_a_script_that_was_killed_meanwhile(self, runs: Runs, server: Server, waits: Clock) -> None:
        run = runs.made("train", {0: "done"})
        (run.path / "notify").mkdir()
        record = run.path / "notify" / "end=phone.json"
        record.write_text(json.dumps({"by": "job", "host": "n1", "time": time.time()}))
        watcher = runs.watcher()
        assert watcher.look() and server.got == []
        record.write_text(json.dumps({"by": "job", "host": "n1", "time": time.time() - 61}))
        assert not watcher.look() and len(server.got) == 1

    def test_what_the_script_could_not_send(
        self, runs: Runs, server: Server, waits: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = runs.made("train", {0: "done"})
        (run.path / "notify").mkdir()
        runs.write(
            run, "notify/end=phone.json", {"by": "job", "time": time.time(), "error": "n1 has no curl"}
        )
        all_have_read, recorded = threading.Barrier(8), notices.notices

        def read(of: RunDirectory) -> Any:
            found = recorded(of)
            all_have_read.wait(patience.SECONDS)
            return found

        monkeypatch.setattr(notices, "notices", read)
        got: list[int | None] = []
        threads = [
            threading.Thread(target=lambda: got.append(notices.claim(run, "end", "phone", "here")))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        monkeypatch.undo()
        assert sorted(map(str, got)) == ["2", *["None"] * 7]
        notices.settle(run, "end", "phone", 2, "here", "later")
        assert notices.claim(run, "end", "phone", "here") == 3

    def test_one_watcher_on_a_host(self, castoff: Castoff) -> None:
        with (
            alone(os.environ),
            pytest.raises(CastoffError, match="another `castoff watch` runs on"),
            alone(os.environ),
        ):
            pass
        assert castoff("watch").stderr == (
            "castoff: no run with `notify` is pending or running; `castoff top` shows all your runs\n"
        )


def test_mail_from_this_host(
    runs: Runs, server: Server, waits: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "sendmail"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/to\ncat >>{tmp_path}/mail\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    runs.made("train", {0: "failed"}, to=["me@example.org"])
    runs.watcher().watch()
    assert (tmp_path / "to").read_text() == "-i -- me@example.org\n"
    mail = (tmp_path / "mail").read_text()
    assert "Subject: train: failed\n" in mail and "KeyError: 'lr'" in mail


def test_a_job_that_is_killed(jobs: LocalJobs, server: Server, castoff: Castoff) -> None:
    """As one whose node goes down: its script sends nothing, and the watcher does."""
    run = jobs.submit(jobs.job('{"name": "train", "command": ["sleep", "600"], "notify": {"to": "phone"}}'))
    while not (run.path / "attempts/0.0/start.json").exists():
        time.sleep(0.01)
    jobs.kill_everything(run)
    answer = castoff("watch", run.id)
    assert answer.returncode == 0, answer.stderr
    assert [got["title"] for got in server.got] == ["train: unknown"]
    assert "phone: train: unknown" in answer.stdout
    assert "no `notify`" in castoff("watch", str(jobs.submit(sh="true").path)).stderr
