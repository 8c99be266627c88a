"""A group of jobs that a laptop submits on a machine: both sides, with the messages between them."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from castoff import Site
from castoff.launcher.config.job_group import JobGroup, load
from castoff.launcher.errors import CastoffError
from castoff.launcher.remote import messages
from castoff.launcher.remote.answering import _Answers, _failed
from castoff.launcher.remote.entries import Entry
from castoff.launcher.remote.group_submission import submit_group_there
from castoff.launcher.remote.machine import Machine, RefusedByMachine
from castoff.launcher.remote.messages import ConnectionLost, Grouped, Message, Order, OrderedGroup
from castoff.launcher.remote.submission import all_planned, codes_of, plain
from castoff.launcher.runs.index import Index
from castoff.launcher.submission.group import resubmit_group

from ..fake_slurm import FakeSlurm

FILE = """
defaults: {ranks_per_node: 1, walltime: 5m, command: ["true"]}
jobs:
  prepare: {}
  train: {after: {afterok: [prepare]}}
  evaluate: {after: {afterok: [train]}}
"""

SBATCH = """
for script; do :; done
refused=$(cat {folder}/refused || echo none) 2>/dev/null
case $script in *"$refused"*) echo 'Invalid account' >&2; exit 1;; esac
job=$(($(wc -l <{folder}/queue) + 7))
echo "$job|N/A|PENDING|Dependency|900|N/A|N/A|$script" >>{folder}/queue
echo $job
"""

CONTINUES = "`castoff --on far submit laptop/pipeline.yaml` submits the rest"


class Far:
    """A laptop with a file of jobs, and a machine with a Slurm that refuses the job that is named."""

    def __init__(self, folder: Path, slurm: FakeSlurm):
        self.slurm = slurm
        self.project = folder / "laptop"
        (self.project / "src").mkdir(parents=True)
        (self.project / "src" / "train.py").touch()  # empty files are listed, but their content is not sent
        self.breaks = False
        self.asked: list[Message] = []

    def submit(self, text: str = FILE, **options: Any) -> Grouped:
        (self.project / "pipeline.yaml").write_text(text)
        group = load(self.project / "pipeline.yaml")
        assert isinstance(group, JobGroup)
        (self.project / "pipeline.yaml").write_text("")  # as the program is
        jobs = all_planned(group.jobs, Site.load("slurm"))
        codes = codes_of(jobs, self.project, os.environ)
        machine = Machine(Entry(name="far", host="h", dir="d"), os.environ, as_named=True)
        with ExitStack() as held:
            answers = _Answers(io.BytesIO(), io.BytesIO(), Path.cwd(), held)
            session: Any = SimpleNamespace(ask=lambda message, _: self._answer(answers, message))
            return submit_group_there(machine, group, jobs, codes, session, os.environ, print, **options)

    def refuses(self, job: str) -> None:
        (self.slurm.folder / "refused").write_text(job)

    def sent(self) -> list[str]:
        """The jobs in the queue."""
        return [line.split("/")[-2].rsplit("-", 3)[0] for line in self.slurm.queue.read_text().splitlines()]

    def _answer(self, answers: _Answers, message: Message) -> Message:
        self.asked.append(message)
        try:
            answer = travelled(answers.answer(travelled(message)))
        except CastoffError as error:
            raise RefusedByMachine("far", _failed(error, str)) from error
        if self.breaks and isinstance(message, Order):
            raise ConnectionLost("")
        return answer


def travelled(message: Message) -> Message:
    stream = io.BytesIO()
    messages.write(stream, message)
    stream.seek(0)
    arrived = messages.read(stream)
    assert arrived is not None
    return arrived


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Far:
    monkeypatch.chdir(tmp_path)
    slurm = FakeSlurm(tmp_path, monkeypatch)
    slurm.program("sbatch", SBATCH.replace("{folder}", str(slurm.folder)))
    slurm.program("git", 'exec git "$@"')
    return Far(tmp_path, slurm)


def test_what_the_scheduler_refuses_is_continued(far: Far) -> None:
    far.refuses("train-")
    with pytest.raises(RefusedByMachine, match=r"far: train: .*Invalid account") as refused:
        far.submit()
    assert not refused.value.is_final and CONTINUES in str(refused.value)
    assert far.sent() == ["prepare"]
    far.refuses("none")
    answer = far.submit(FILE.replace("train: {", "train: {walltime: 6m, "))
    assert [(name, run.was_there) for name, run in answer.jobs.items()] == [
        ("prepare", True),
        ("train", False),
        ("evaluate", False),
    ]
    assert far.sent() == ["prepare", "train", "evaluate"] and answer.group in str(refused.value)
    assert far.submit().group != answer.group and len(far.sent()) == 6


def test_an_answer_that_is_lost_is_given_again(far: Far) -> None:
    far.breaks = True
    with pytest.raises(ConnectionLost):
        far.submit()
    far.breaks = False
    assert all(run.was_there for run in far.submit().jobs.values())
    assert far.sent() == ["prepare", "train", "evaluate"]


@pytest.mark.parametrize("new", [False, True])
def test_a_job_that_was_submitted_may_not_change(far: Far, new: bool) -> None:
    far.refuses("evaluate-")
    with pytest.raises(RefusedByMachine):
        far.submit()
    far.refuses("none")
    changed = FILE.replace("prepare: {}", "prepare: {walltime: 6m}")
    if new:
        assert not any(run.was_there for run in far.submit(changed, new=True).jobs.values())
        assert far.sent() == ["prepare", "train", "prepare", "train", "evaluate"]
        return
    for _ in range(2):
        with pytest.raises(RefusedByMachine, match="after 2 jobs, which changed since: prepare") as refused:
            far.submit(changed)
        assert "`castoff --on far submit laptop/pipeline.yaml --new` begins anew" in str(refused.value)
    assert far.sent() == ["prepare", "train"]


def test_the_command_that_continues_needs_no_runs_dir(far: Far, tmp_path: Path) -> None:
    far.refuses("evaluate-")
    with pytest.raises(RefusedByMachine, match=CONTINUES):
        far.submit(runs_dir=str(tmp_path / "runs"))
    far.refuses("none")
    assert [run.was_there for run in far.submit().jobs.values()] == [True, True, False]
    assert far.sent() == ["prepare", "train", "evaluate"]


def test_the_command_that_continues_is_for_a_shell(far: Far) -> None:
    far.submit(selection=("--only", "it's"))
    (order,) = (message for message in far.asked if isinstance(message, Order))
    assert (
        order.group
        and order.group.command == """castoff --on far submit laptop/pipeline.yaml --only 'it'"'"'s'"""
    )


def test_a_cancelled_group_is_not_continued(far: Far) -> None:
    far.refuses("train-")
    with pytest.raises(RefusedByMachine):
        far.submit()
    far.refuses("none")
    group = Index.of(os.environ).groups.newest("pipeline")
    assert group is not None
    group.close()
    with pytest.raises(RefusedByMachine, match=f"{group.id} was cancelled; now .* begins a new group"):
        far.submit()
    assert far.submit().group != group.id and far.sent() == ["prepare", "prepare", "train", "evaluate"]


def test_resubmit_names_the_command_for_jobs_without_a_run(far: Far) -> None:
    """Their code is on the laptop."""
    far.refuses("prepare-")
    with pytest.raises(RefusedByMachine):
        far.submit()
    far.refuses("none")
    group = Index.of(os.environ).groups.newest("pipeline")
    assert group is not None
    with pytest.raises(
        CastoffError, match=r"train was never submitted: `castoff --on far submit laptop/pipeline\.yaml`"
    ):
        resubmit_group(group)


def test_each_job_gets_the_code_that_it_chooses(far: Far) -> None:
    text = FILE.replace("evaluate: {", "evaluate: {snapshot: {paths: [src]}, ")
    text = text.replace("train: {", "train: {snapshot: {paths: [src]}, ")
    answer = far.submit(text)
    codes = [message for message in far.asked if isinstance(message, messages.Code)]
    assert [[file.name for file in code.files] for code in codes] == [
        [b"pipeline.yaml", b"src/train.py"],
        [b"src/train.py"],
    ]
    runs = [Index.of(os.environ).find(run.run).submission() for run in answer.jobs.values()]
    folders = [Path(run.directory or "").name for run in runs if run]
    assert folders == [codes[0].name, codes[1].name, codes[1].name]


def wrong_code(order: Order) -> None:
    order.jobs[0].code = 7


def wrong_id(order: Order) -> None:
    order.run = "../pipeline-20261129-101500-1f2e"


@pytest.mark.parametrize(
    ("spoil", "message"), [(wrong_code, "arrived without its code"), (wrong_id, "with an invalid id")]
)
def test_an_order_that_makes_no_sense(far: Far, spoil: Callable[[Order], None], message: str) -> None:
    with ExitStack() as held:
        answers = _Answers(io.BytesIO(), io.BytesIO(), Path.cwd(), held)
        job = messages.OrderedJob(b'{"name": "train", "command": ["true"]}', None, "", {})
        about = OrderedGroup("pipeline", "/pipeline.yaml", [], "castoff submit pipeline.yaml")
        order = Order("pipeline-20261129-101500-1f2e", plain(Site.load("slurm")), [job], about)
        spoil(order)
        with pytest.raises(CastoffError, match=message):
            answers.answer(order)
    assert far.sent() == [] and Index.of(os.environ).groups.ids() == []
