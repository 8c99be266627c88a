"""One command for each host: one that fails, hangs or answers late delays no other, and is named."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.interactive.places import Place
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.stacks import collecting
from castoff.launcher.stacks.collecting import collect
from tests.patience import until

PLAN = '{"ranks": 6, "layout": [[2, 3]]}'
ANSWERS = """
echo banner
for rank in $RANKS; do echo {mark} rank $rank 6 1$rank S - - 1 python; done
echo {mark} over
"""


class Cluster:
    """A run on three hosts with two ranks each, of which each runs a line of shell."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.run = RunDirectory(folder / "run")
        attempt = self.run.path / "attempts" / "0.0"
        (attempt / "ended").mkdir(parents=True, mode=0o700)
        (self.run.path / "plan.json").write_text(PLAN)
        self.attempt = attempt
        self.lines = {
            host: f"RANKS='{2 * number} {2 * number + 1}'; {ANSWERS}" for number, host in enumerate("abc")
        }

        def place(
            run: RunDirectory, member: object, rank: int | None, host: str | None, *, needs: str
        ) -> Place:
            number = "abc".index(host) if host else (rank or 0) // 2
            return Place(run, attempt, [*"abc"], number, rank, "7", "slurm")

        def on_host(where: Place, command: list[str], **_: object) -> list[str]:
            mark = command[command.index("castoff") + 3]
            return ["sh", "-c", self.lines[where.hosts[where.number]].replace("{mark}", mark)]

        monkeypatch.setattr(collecting, "place", place)
        monkeypatch.setattr(collecting, "on_host", on_host)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(tmp_path, monkeypatch)


def test_all_hosts_answer(cluster: Cluster) -> None:
    found = collect(cluster.run, None, [], None, {}, all_threads=False)
    assert [(rank.rank, rank.host) for rank in found.ranks] == [*zip(range(6), "aabbcc", strict=True)]
    assert (found.member, found.attempt, found.unanswered, found.over, found.missing) == (0, 0, [], [], [])


def test_only_the_hosts_of_what_is_asked_for(cluster: Cluster) -> None:
    cluster.lines["a"] = cluster.lines["b"] = "echo asked >&2; exit 3"
    found = collect(cluster.run, None, [], "c", {}, all_threads=False)
    assert [rank.rank for rank in found.ranks] == [4, 5] and found.unanswered == []
    found = collect(cluster.run, None, [4, 5], None, {}, all_threads=False)
    assert [rank.rank for rank in found.ranks] == [4, 5] and found.unanswered == []


def test_hosts_and_ranks_that_are_missing(cluster: Cluster) -> None:
    """Ranks of a host without an answer are not missing: it is."""
    cluster.lines["a"] = "echo one >&2; echo two >&2; exit 9"
    cluster.lines["b"] = f"RANKS=; {ANSWERS}"
    (cluster.attempt / "ended" / "3").touch()
    found = collect(cluster.run, None, [], None, {}, all_threads=False)
    assert [(one.host, one.reason) for one in found.unanswered] == [("a", "sh exited with code 9: two")]
    assert (found.over, found.missing) == ([3], [2])


def test_a_program_that_started_ranks_of_its_own(cluster: Cluster) -> None:
    """castoff's ranks are then no measure of what is missing."""
    cluster.lines |= {host: f"RANKS=0; {ANSWERS}".replace(" 6 1", " 16 1") for host in "abc"}
    assert collect(cluster.run, None, [], None, {}, all_threads=False).missing == []


def new_children(before: list[psutil.Process]) -> list[psutil.Process]:
    """Processes that this one has started since; servers of other tests may live on beside them."""
    return [one for one in psutil.Process().children() if one not in before]


def test_a_host_that_hangs(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has printed counts, and its command is ended, even one that ignores TERM."""
    before = psutil.Process().children()
    monkeypatch.setattr(collecting, "_PATIENCE", 0.0)
    monkeypatch.setattr(collecting, "_GRACE", 0.0)
    cluster.lines = dict.fromkeys("abc", "trap '' TERM; while :; do sleep 60; done")
    found = collect(cluster.run, None, [], None, {}, all_threads=False)
    assert [(one.host, one.reason) for one in found.unanswered] == [
        (host, "not within 0 s") for host in "abc"
    ]
    assert found.missing == [] and new_children(before) == []


def test_what_is_interrupted_leaves_nothing(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that cannot be reached at all ends the others' commands."""
    before = psutil.Process().children()
    cluster.lines["a"] = "touch begun; sleep 600"
    ask = collecting._Hosts.ask

    def fails(hosts: collecting._Hosts, where: Place) -> object:
        if where.number == 0:
            return ask(hosts, where)
        until((tmp_path / "begun").exists)
        raise CastoffError("no way")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(collecting._Hosts, "ask", fails)
    with pytest.raises(CastoffError, match="no way"):
        collect(cluster.run, None, [], None, {"PATH": "/usr/bin:/bin"}, all_threads=False)
    assert new_children(before) == []
