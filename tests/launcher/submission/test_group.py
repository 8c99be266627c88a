"""submit_group and resubmit_group: order, exactly once, and what a refusal or a change of the file means."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from castoff import InvalidInput, JobSpec, RunGroup, Site, submit_all
from castoff.launcher.config.job_group import JobGroup, load
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.groups import Group
from castoff.launcher.runs.index import Index
from castoff.launcher.status import watch
from castoff.launcher.status.overview import rebuild
from castoff.launcher.submission.group import GroupStopped, resubmit_group, submit_group
from castoff.launcher.submission.group_checks import check_plans
from tests import patience
from tests.command_line import Castoff
from tests.records import submission_of

from ..fake_slurm import FakeSlurm

FILE = """
defaults: {ranks_per_node: 1, walltime: 5m, command: ["true"]}
jobs:
  prepare: {}
  train: {after: {afterok: [prepare]}}
  evaluate: {after: {afterok: [train], afterany: ["99"]}}
"""

QUEUES = """
for script; do :; done
case $script in *"$(cat refused 2>/dev/null || echo none)"*) echo 'Invalid account' >&2; exit 1;; esac
job=$(($(wc -l <queue) + 7))
echo "$job|N/A|PENDING|Dependency|900|N/A|N/A|$script" >>queue
echo "$*" >>sent
[ ! -e lost ] || exit 1
echo $job
"""
"""An sbatch that keeps its queue in the working directory, and refuses the scripts that `refused` names."""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    monkeypatch.setattr("castoff.launcher.status.settle.APART", 0.0)
    monkeypatch.setattr("castoff.launcher.status.settle._POLL", 0.01)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queue").touch()
    (tmp_path / "sent").touch()
    fake = FakeSlurm(tmp_path, monkeypatch)
    fake.program("sbatch", QUEUES)
    fake.program("squeue", "cat queue")
    return fake


def jobs_of(text: str = FILE) -> JobGroup:
    Path("pipeline.yaml").write_text(text)
    group = load("pipeline.yaml")
    assert isinstance(group, JobGroup)
    return group


def submit(text: str = FILE, *, new: bool = False) -> Group:
    return submit_group(jobs_of(text), Site.load("slurm"), new=new)


def sent() -> list[str]:
    """The names of the jobs that were sent, each with its dependency."""
    found = []
    for line in Path("sent").read_text().splitlines():
        words = line.split()
        dependency = [word.removeprefix("--dependency=") for word in words if word.startswith("--dep")]
        found.append(" ".join([words[-1].split("/")[-2].rsplit("-", 3)[0], *dependency]))
    return found


ALL = ["prepare", "train afterok:7", "evaluate afterok:8,afterany:99"]


def test_order(slurm: FakeSlurm) -> None:
    group = submit()
    assert sent() == ALL
    assert [submission_of(run).group for run in group.runs] == 3 * [group.id]
    again = submit()
    assert again.id != group.id and len(sent()) == 6, "all was sent, so the same command begins anew"


def test_a_refusal_half_way(slurm: FakeSlurm, capsys: pytest.CaptureFixture[str]) -> None:
    Path("refused").write_text("train")
    with pytest.raises(GroupStopped) as stopped:
        submit()
    first = Index.of(os.environ).groups.ids()
    assert "Invalid account" in str(stopped.value)
    ways = f"1 of 3 jobs of {first[0]} submitted; `castoff submit pipeline.yaml` submits the rest"
    assert str(stopped.value).endswith(ways)
    with pytest.raises(GroupStopped):
        submit()
    Path("refused").unlink()
    assert submit().id == first[0] and sent() == ALL
    assert "this continues it; submitted before: prepare\n" in capsys.readouterr().err
    assert Index.of(os.environ).groups.ids() == first


def test_what_was_refused_may_change(slurm: FakeSlurm) -> None:
    Path("refused").write_text("train")
    with pytest.raises(GroupStopped):
        submit()
    Path("refused").unlink()
    changed = FILE.replace("train: {", "train: {account: mine, ").replace("evaluate:", "score:")
    group = submit(changed)
    assert [line.split()[0] for line in sent()] == ["prepare", "train", "score"]
    assert [*group.jobs] == ["prepare", "train", "score"]
    assert [*(Index.of(os.environ).group("pipeline") or group).jobs] == ["prepare", "train", "score"]


def test_what_was_sent_may_not_change(slurm: FakeSlurm) -> None:
    Path("refused").write_text("train")
    with pytest.raises(GroupStopped):
        submit()
    Path("refused").unlink()
    changed = FILE.replace("prepare: {}", "prepare: {nodes: 2}")
    with pytest.raises(CastoffError, match="which changed since: prepare\n`castoff resubmit pipeline-"):
        submit(changed)
    with pytest.raises(CastoffError, match=r"which changed since: the site \(slurm, now other\)"):
        submit_group(jobs_of(), msgspec.structs.replace(Site.load("slurm"), name="other"))
    (group,) = Index.of(os.environ).groups.ids()
    resubmit_group(Index.of(os.environ).groups.read(group) or pytest.fail(group))
    assert sent() == ALL, "as it was at first"
    assert submit(changed, new=True).id != group


def test_new(slurm: FakeSlurm) -> None:
    Path("refused").write_text("train")
    with pytest.raises(GroupStopped):
        submit()
    Path("refused").unlink()
    submit(new=True)
    assert [line.split()[0] for line in sent()] == ["prepare", "prepare", "train", "evaluate"]


def test_a_cancelled_group_is_not_continued(slurm: FakeSlurm) -> None:
    Path("refused").write_text("train")
    with pytest.raises(GroupStopped):
        submit()
    Path("refused").unlink()
    group = Index.of(os.environ).group("pipeline")
    assert group is not None
    group.close()
    assert submit().id != group.id and len(sent()) == 4


def test_an_answer_that_was_lost(slurm: FakeSlurm) -> None:
    """sbatch queues the job and says nothing: the queue knows."""
    Path("lost").touch()
    submit()
    assert sent() == ALL


def test_nothing_is_sent_if_a_job_is_wrong(slurm: FakeSlurm) -> None:
    wrong = FILE.replace("afterok: [prepare]", "afterok: [prepar]").replace(
        "  prepare: {}", "  prepare: {python: x}"
    )
    with pytest.raises(InvalidInput) as error:
        submit(wrong)
    assert [str(problem) for problem in error.value.problems] == [
        "pipeline.yaml:4: python: is 'x', but must be absolute: the job has another PATH than you"
    ]
    with pytest.raises(InvalidInput) as error:
        submit(FILE.replace("afterok: [prepare]", "afterok: [prepar]"))
    assert str(error.value) == (
        "pipeline.yaml:5: after.afterok.0: is prepar, which is neither a job of this group nor a run; "
        "did you mean prepare?"
    )
    assert sent() == [] and Index.of(os.environ).groups.ids() == []


@pytest.mark.parametrize(
    ("site", "condition", "waits"),
    [
        ("slurm", "afterok", True),
        ("slurm", "afterany", True),
        ("pbs", "afterok", False),
        ("local", "afterany", True),
    ],
)
def test_a_requeued_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: str, condition: str, waits: bool
) -> None:

    monkeypatch.chdir(tmp_path)
    text = FILE.replace("prepare: {}", "prepare: {requeue: {max: 2}}").replace(
        "afterok: [prepare]", f"{condition}: [prepare]"
    )
    if site == "local":
        text = text.replace(', afterany: ["99"]', "")
    if waits:
        check_plans(jobs_of(text), Site.load(site))
        return
    with pytest.raises(InvalidInput, match=r"is prepare, for which \w+ cannot wait: it may be requeued"):
        check_plans(jobs_of(text), Site.load(site))


def test_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.chdir(tmp_path)
    text = FILE.replace("prepare: {}", "prepare: {array: {count: 4}}").replace(
        "train: {after: {afterok: [prepare]}}", "train: {array: {count: N}, after: {aftercorr: [prepare]}}"
    )
    check_plans(jobs_of(text.replace("N", "4")), Site.load("slurm"))
    with pytest.raises(InvalidInput, match="which has members 0 to 3, but this job has 0 to 4"):
        check_plans(jobs_of(text.replace("N", "5")), Site.load("slurm"))
    with pytest.raises(InvalidInput, match=r"after\.aftercorr: is not a condition of PBS"):
        check_plans(jobs_of(text.replace("N", "4")), Site.load("pbs"))


class TestNames:
    def test_groups_and_runs(self, slurm: FakeSlurm) -> None:
        group, index = submit(), Index.of(os.environ)
        for reference in ("pipeline", group.id, group.id[:-2]):
            found = index.group(reference)
            assert found is not None and found.id == group.id
            assert [run.id for run in index.find_all([reference])] == [run.id for run in group.runs]
            with pytest.raises(CastoffError, match="is a group of 3 runs; name one of them: prepare-"):
                index.find(reference)
        assert index.group("train") is None and index.find("train").id == group.runs[1].id
        assert index.group("no-such") is None

    def test_a_lost_journal(self, slurm: FakeSlurm) -> None:
        group, index = submit(), Index.of(os.environ)
        group.path.unlink()
        assert index.group("pipeline") is None
        rebuild(index, Path("castoff-runs"))
        found = index.group("pipeline")
        assert found is not None and found.id == group.id and found.unsent == []
        assert {name: job.after for name, job in found.jobs.items()} == {
            "prepare": {},
            "train": {"afterok": ["prepare"]},
            "evaluate": {"afterok": ["train"]},
        }

    def test_runs_that_were_moved(self, slurm: FakeSlurm) -> None:
        group, index = submit(), Index.of(os.environ)
        Path("castoff-runs").rename("elsewhere")
        rebuild(index, Path("elsewhere"))
        found = index.group("pipeline")
        assert found is not None and found.id == group.id
        assert {run.path.parent.name for run in found.runs} == {"elsewhere"} and found.unsent == []

    def test_list_and_names(self, slurm: FakeSlurm, castoff: Callable[..., object]) -> None:
        group = submit()
        entries = Index.of(os.environ).entries()
        assert {entry.group for entry in entries} == {group.id}
        assert all(entry.matches("pipe*") for entry in entries)
        assert [entry.matches("train") for entry in entries] == [False, True, False]


@pytest.mark.costly
class TestOnThisMachine:
    @pytest.fixture(autouse=True)
    def _here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, for_real: None) -> None:
        monkeypatch.chdir(tmp_path)

    def test_failure_and_resubmission(self) -> None:
        """What failed and what waited for it starts again, with the run directory of an earlier job."""

        def job(name: str, line: str, **after: list[str]) -> JobSpec:
            return JobSpec.of(
                {"name": name, "command": ["sh", "-c", line], "ranks_per_node": 1, "after": after}
            )

        jobs = [
            job("join", "cat {left.dir}/out {base.dir}/out >joined", afterok=["left", "right"]),
            job("base", "echo base >$CASTOFF_RUN_DIR/out; echo base >>ran"),
            job("left", "[ -e ok ] && echo left >$CASTOFF_RUN_DIR/out", afterok=["base"]),
            job("right", "true", afterok=["base"]),
            job("told", "echo told >>ran", afternotok=["left"]),
        ]
        group = submit_all(jobs, Site.load("local"), name="diamond")
        endings = {name: now.ending for name, now in group.wait(patience.SECONDS).items()}
        assert endings == {
            "base": "done",
            "left": "failed",
            "right": "done",
            "join": "cancelled",
            "told": "done",
        }
        Path("ok").touch()
        again = RunGroup.find("diamond")
        assert again.resubmit() == ["left", "join"]
        endings = {name: now.ending for name, now in again.wait(patience.SECONDS).items()}
        assert {*endings.values()} == {"done"}
        assert Path("joined").read_text() == "left\nbase\n"
        assert sorted(Path("ran").read_text().split()) == ["base", "told"]
        assert again.resubmit() == []

    def test_a_failure_that_did_not_happen(self, castoff: Castoff) -> None:
        """What waited for it is not needed, nor what waited for that, and neither counts."""
        jobs = [
            JobSpec.of({"name": name, "command": ["true"], "ranks_per_node": 1, "after": after})
            for name, after in (
                ("good", {}),
                ("clean", {"afternotok": ["good"]}),
                ("told", {"afterok": ["clean"]}),
            )
        ]
        group = submit_all(jobs, Site.load("local"), name="cleaned")
        assert castoff("wait", "cleaned").returncode == 0
        assert "1 of 3 jobs done, 2 not needed\n\n" in castoff("status", "cleaned").stdout
        assert group.resubmit() == []

    def test_cancel(self) -> None:
        jobs = [
            JobSpec(name="first", command=["sleep", "600"], ranks_per_node=1),
            JobSpec(name="second", command=["true"], ranks_per_node=1, after={"afterok": ["first"]}),
        ]
        group = submit_all(jobs, Site.load("local"))
        patience.until(lambda: watch.status(group.runs["first"]).state == "running")
        assert {now.ending for now in group.cancel().values()} == {"cancelled"}

    def test_pairs(self) -> None:
        """Each member waits for its own, not for the whole array; one whose partner fails never begins."""
        number = "$CASTOFF_ARRAY_INDEX"
        begins = f"[ {number} = 0 -o -e second.0 ]"
        first = JobSpec.of(
            {
                "name": "first",
                "array": {"count": 3},
                "ranks_per_node": 1,
                "command": ["sh", "-c", f"until {begins}; do sleep 0.05; done; [ {number} != 1 ]"],
            }
        )
        second = JobSpec.of(
            {
                "name": "second",
                "array": {"count": 3},
                "ranks_per_node": 1,
                "after": {"aftercorr": ["first"]},
                "command": ["sh", "-c", "touch second.$CASTOFF_ARRAY_INDEX"],
            }
        )
        ended = submit_all([first, second], Site.load("local")).wait(patience.SECONDS)
        assert [member.ending for member in ended["second"].members] == ["done", "cancelled", "done"]
        assert not Path("second.1").exists()
