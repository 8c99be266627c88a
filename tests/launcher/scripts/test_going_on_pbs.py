"""Going on on PBS, which starts no job twice: by a copy, or by a chain of jobs sent beforehand."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cases import others_long

from .conftest import Benches
from .harness import Bench, Ended

KINDS = others_long(["pals", "hydra"], ["pals"])
AGAIN = {"PROBE": "outcome resume"}


def next_of(ended: Ended, attempt: str = "0.0") -> Path:
    return ended.run_dir / "attempts" / attempt / "next.json"


class TestCopy:
    def go_on(self, here: Bench, env: dict[str, str] | None = None, **fields: Any) -> Ended:
        asked = {"ranks_per_node": 1, "requeue": {"max": 1}, **fields}
        return here.run(**asked, env={**AGAIN, **(env or {})})

    @pytest.mark.parametrize("kind", KINDS)
    def test_which_job_follows_is_written_down(self, kind: str, bench: Benches) -> None:
        before = int(time.time())
        ended = self.go_on(bench(kind), {"STUB_QSUB_SAYS": "8.head\nwelcome"})
        reported = json.loads(next_of(ended).read_text())
        assert reported.pop("time") in range(before, int(time.time()) + 1)
        assert reported == {"job": "8.head"}
        assert next_of(ended).stat().st_mode & 0o077 == 0

    @pytest.mark.everyday("env0")
    @pytest.mark.parametrize("env", [{"STUB_QSUB_CODE": "1"}, {"STUB_QSUB_SAYS": "qsub: later"}])
    def test_without_an_id_nobody_follows(self, env: dict[str, str], bench: Benches) -> None:
        ended = self.go_on(bench("pals"), env, grace="1s")
        assert ended.ending == ("walltime", 75)
        assert "castoff: not requeued: the scheduler did not requeue it" in ended.output
        assert not next_of(ended).exists()

    def test_an_id_counts_though_it_cannot_be_written_down(self, bench: Benches) -> None:
        here = bench("pals")
        here.stub("qsub", '#!/bin/sh\nmkdir "$CASTOFF_ATTEMPT_DIR/.next.json"\necho 8.head\n')
        ended = self.go_on(here)
        assert ended.ending == ("resume", 75)
        assert "castoff: job 8.head was submitted, but could not be recorded" in ended.output

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_member_resumes_by_itself(self, kind: str, bench: Benches) -> None:
        here = bench(kind)
        here.array_index = 3
        array = {"count": 8, "max_concurrent": 2}
        ended = self.go_on(here, {"STUB_QSUB_SAYS": "9[].head"}, array=array)
        assert ended.record("ending", "3.0")["ending"] == "resume", ended.output
        assert json.loads(next_of(ended, "3.0").read_text())["job"] == "9[].head"
        (call,) = here.calls("qsub")
        names = "CASTOFF_RUN_DIR,CASTOFF_ATTEMPT,CASTOFF_FIRST_ATTEMPT,CASTOFF_FOLLOWS"
        assert call[:4] == ["-v", names, "-J", "3-4:2"]
        assert call[4:] == ["-o", f"{ended.run_dir}/logs/job-^array_index^.log", f"{ended.run_dir}/job.sh"]
        reported = json.loads((here.seen.parent / "qsub.json").read_text())
        assert reported["CASTOFF_ATTEMPT"] == "1"
        # The copy is an array of its own, and counts on.
        env = {"CASTOFF_RUN_DIR": str(ended.run_dir), "CASTOFF_ATTEMPT": "1", "CASTOFF_FIRST_ATTEMPT": "0"}
        again = self.go_on(here, env, array=array)
        why = "not requeued: requeue.max (1) is used up"
        expected = {"ending": "walltime", "code": 75, "time": 0, "reason": why}
        assert again.record("ending", "3.1") | {"time": 0} == expected
        assert len(here.calls("qsub")) == 1

    def test_a_member_does_not_wait_once_more_for_what_the_array_waited_for(self, bench: Benches) -> None:
        """qsub takes no dependency on a member (parse_depend.c), and what is long over may be unknown."""
        here = bench("hydra")
        here.array_index = 1
        ended = self.go_on(here, array={"count": 2}, after={"afterok": ["5.head"]})
        assert ended.code == 0, ended.output
        (call,) = here.calls("qsub")
        assert call[call.index("-W") + 1] == "depend=after:7[].head"

    # Submitted beforehand

    def test_it_waits_from_the_beginning(self, bench: Benches) -> None:
        """Whatever is wrong with PBS when the job wants to go on."""
        here = bench("pals")
        here.stub(
            "qsub", '#!/bin/sh\nmkdir "$PROBE_FOLDER/called" && ls "$PROBE_FOLDER" && echo 8.head && exit 1\n'
        )
        ended = self.go_on(here)
        assert (ended.code, ended.ending) == (75, ("resume", 75)), ended.output
        assert json.loads(next_of(ended).read_text())["job"] == "8.head"

    def test_it_is_tried_again_at_the_end(self, bench: Benches) -> None:
        here = bench("pals")
        count = 'n=0; while ! mkdir "$PROBE_FOLDER/called-$n" 2>/dev/null; do n=$((n + 1)); done'
        here.stub(
            "qsub", f"#!/bin/bash\n{count}\nif ((n < 2)); then echo later >&2; exit 1; fi; echo 8.head\n"
        )
        ended = self.go_on(here)
        assert (ended.code, ended.ending) == (75, ("resume", 75)), ended.output
        assert "could not be submitted yet; it is tried again at the end" in ended.output
        assert json.loads(next_of(ended).read_text())["job"] == "8.head"

    @pytest.mark.long
    @pytest.mark.parametrize(
        ("probe", "ending", "deleted"),
        [
            ("outcome done", "done", []),
            ("fail 0 3", "failed", [["8.head"]]),
            ("outcome resume", "resume", []),
        ],
    )
    def test_a_job_that_does_not_resume_removes_its_copy(
        self, probe: str, ending: str, deleted: list[list[str]], bench: Benches
    ) -> None:
        """PBS does so itself after a job that ends with 0."""
        here = bench("pals")
        ended = self.go_on(here, {"PROBE": probe})
        assert ended.record("ending")["ending"] == ending
        assert here.calls("qdel") == deleted

    @pytest.mark.long
    def test_a_job_that_pbs_starts_anew_has_one_already(self, bench: Benches) -> None:
        here = bench("pals")
        first = self.go_on(here, {"PROBE": "nothing"}, requeue={"max": 2})
        (first.run_dir / "attempts" / "0.0" / "ending.json").unlink()
        again = self.go_on(here, {"CASTOFF_RUN_DIR": str(first.run_dir)}, requeue={"max": 2})
        assert again.record("ending", "0.1")["ending"] == "resume", again.output
        assert json.loads(next_of(again, "0.1").read_text())["job"] == "8.head"
        assert len(here.calls("qsub")) == 1

    def begun(self, here: Bench, ending: str | None) -> tuple[Path, dict[str, str]]:
        """A run whose first attempt has ended so, as job 6.head; and what its copy is told."""
        folder = self.go_on(here).run_dir
        attempt = folder / "attempts" / "0.0"
        start = json.loads((attempt / "start.json").read_text())
        (attempt / "start.json").write_text(json.dumps({**start, "job": "6.head"}) + "\n")
        (attempt / "ending.json").unlink()
        if ending is not None:
            (attempt / "ending.json").write_text(json.dumps({"ending": ending, "code": 75, "time": 1}) + "\n")
        for path in here.seen.iterdir():
            path.unlink()
        names = {"CASTOFF_RUN_DIR": str(folder), "CASTOFF_ATTEMPT": "1", "CASTOFF_FIRST_ATTEMPT": "0"}
        return folder, {**names, "CASTOFF_FOLLOWS": "6.head", "PROBE": "outcome done"}

    @pytest.mark.long
    def test_it_begins_once(self, bench: Benches) -> None:
        """Of two copies, as where qsub gave no answer and was called again, one begins."""
        here = bench("pals")
        folder, reported = self.begun(here, "resume")
        (folder / "attempts" / "0.0" / "follower").write_text("9.head\n")
        other = self.go_on(here, reported)
        assert (other.code, here.ranks()) == (0, [])
        assert other.output.endswith("does not begin: another copy of job 6.head has begun\n")
        (folder / "attempts" / "0.0" / "follower").unlink()
        assert self.go_on(here, reported).record("ending", "0.1")["ending"] == "done"
        assert (folder / "attempts" / "0.0" / "follower").read_text() == "7.head\n"

    @pytest.mark.long
    @pytest.mark.parametrize(
        ("ending", "why"),
        [
            ("walltime", "attempt 0 has ended: walltime"),
            (None, "attempt 0 has ended: it was killed"),
            ("another", "another job has begun attempt 0 in its place"),
            ("stop", "the run was asked to stop; castoff resubmit restarts it"),
        ],
    )
    def test_it_does_not_begin(self, ending: str | None, why: str, bench: Benches) -> None:
        here = bench("pals")
        folder, reported = self.begun(here, "resume" if ending in ("stop", "another") else ending)
        if ending == "stop":
            (folder / "stop").touch()
        if ending == "another":
            reported["CASTOFF_FOLLOWS"] = "5.head"
        ended = self.go_on(here, reported)
        assert (ended.code, here.ranks()) == (0, [])
        assert (
            ended.output
            == f"castoff: job 7.head, a copy of {reported['CASTOFF_FOLLOWS']}, does not begin: {why}\n"
        )
        assert not (folder / "attempts" / "0.1").exists()


class TestChain:
    MAX = 2

    @pytest.fixture
    def here(self, bench: Benches) -> Bench:
        return bench("pals")

    def link(self, here: Bench, number: int, probe: str, run_dir: Path | None, **env: str) -> Ended:
        """One job of the chain; of the first, castoff submit has made no directory here."""
        reported = {"CASTOFF_CHAIN": str(number)} | ({"CASTOFF_RUN_DIR": str(run_dir)} if run_dir else {})
        asked = {"ranks_per_node": 1, "requeue": {"max": self.MAX, "how": "chain"}}
        return here.run(**asked, env={"PROBE": probe, **reported, **env})

    def begun(self, here: Bench, ending: str | None) -> Path:
        """A run whose first attempt has ended so; None: it was killed."""
        ended = self.link(here, 0, "nothing", None)
        record = ended.run_dir / "attempts" / "0.0" / "ending.json"
        if ending is None:
            record.unlink()
        else:
            record.write_text(json.dumps({"ending": ending, "code": 75, "time": 1}) + "\n")
        for path in here.seen.iterdir():
            path.unlink()
        return ended.run_dir

    @pytest.mark.everyday("resume")
    @pytest.mark.parametrize("ending", ["resume", None])
    def test_the_next_job_of_the_chain_resumes(self, ending: str | None, here: Bench) -> None:
        run_dir = self.begun(here, ending)
        ended = self.link(here, 1, "outcome done", run_dir)
        assert ended.code == 0, ended.output
        assert ended.record("ending", "0.1")["ending"] == "done"
        reported = here.ranks()[0]["environ"]
        assert (
            reported["CASTOFF_ATTEMPT"],
            reported["CASTOFF_FIRST_ATTEMPT"],
            reported["CASTOFF_CHAIN"],
        ) == (
            "1",
            "0",
            "1",
        )
        assert here.calls("qsub") == []

    @pytest.mark.parametrize("ending", ["failed", "walltime"])
    def test_does_not_begin(self, ending: str, here: Bench) -> None:
        run_dir = self.begun(here, ending)
        ended = self.link(here, 1, "outcome done", run_dir)
        assert ended.code == 0
        assert ended.output == f"castoff: job 1 of the chain does not begin: attempt 0 has ended: {ending}\n"
        assert [path.name for path in (run_dir / "attempts").iterdir()] == ["0.0"]
        assert [path.name for path in (run_dir / "logs").iterdir()] == ["0.0"]
        assert here.ranks() == []

    def test_the_run_was_asked_to_stop(self, here: Bench) -> None:
        run_dir = self.begun(here, "resume")
        (run_dir / "stop").touch()
        ended = self.link(here, 1, "outcome done", run_dir)
        assert ended.code == 0 and not (run_dir / "attempts" / "0.1").exists()
        assert ended.output.endswith("the run was asked to stop; castoff resubmit restarts it\n")

    def test_nothing_has_begun_yet_in_this_submission(self, here: Bench) -> None:
        """The job before it was deleted while it waited; an earlier submission's attempts do not count."""
        run_dir = self.begun(here, "resume")
        ended = self.link(here, 1, "nothing", run_dir, CASTOFF_ATTEMPT="1", CASTOFF_FIRST_ATTEMPT="1")
        assert ended.code == 0 and not (run_dir / "attempts" / "0.1").exists()
        assert ended.output.endswith("does not begin: the job before it never began\n")

    @pytest.mark.everyday("0-resume")
    @pytest.mark.parametrize(("number", "ending"), [(0, "resume"), (2, "walltime")])
    def test_stops_early(self, number: int, ending: str, here: Bench) -> None:
        """Not with 0, so that PBS starts the next; after the last there is none."""
        run_dir = self.begun(here, "resume")
        ended = self.link(here, number, "outcome resume", run_dir)
        record = ended.record("ending", "0.1")
        assert (ended.code, record["ending"], record["code"]) == (75, ending, 75)
        assert ("requeue.max (2) is used up" in ended.output) == (ending == "walltime")
        assert here.calls("qsub") == []

    def test_without_a_chain_nobody_follows(self, here: Bench) -> None:
        ended = here.run(ranks_per_node=1, requeue={"max": 2, "how": "chain"}, env=AGAIN)
        assert ended.ending == ("walltime", 75)
        assert "castoff: not requeued: no chain follows: castoff submit sends one" in ended.output

    def test_another_jobs_chain_is_not_believed(self, here: Bench) -> None:
        """As where a job with inherit: all submits another by hand."""
        others = here.folder / "others"
        others.mkdir(mode=0o700)
        (others / "job.sh").write_text("another script\n")
        ended = self.link(here, 1, "outcome done", others)
        assert ended.ending == ("done", 0)
        assert "CASTOFF_CHAIN" not in here.ranks()[0]["environ"]

    @pytest.mark.long
    def test_a_job_that_pbs_restarts_resumes(self, here: Bench) -> None:
        """After a node failure, `-r y`: its own last attempt has no ending."""
        run_dir = self.begun(here, "resume")
        self.link(here, 1, "nothing", run_dir)
        (run_dir / "attempts" / "0.1" / "ending.json").unlink()
        ended = self.link(here, 1, "outcome done", run_dir)
        assert ended.record("ending", "0.2")["ending"] == "done"
