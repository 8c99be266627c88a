"""One run as text."""

from __future__ import annotations

import pytest

from castoff.launcher.history.attempt_use import with_advice
from castoff.launcher.history.attempts import HostRanks, Phase
from castoff.launcher.history.progress import Metric, Progress
from castoff.launcher.history.use import NodeUse, Use
from castoff.launcher.runs.records import Facts, Failure
from castoff.launcher.runs.states import MemberStatus
from castoff.launcher.screen.detail import Detail, Excerpt, chosen_member
from castoff.launcher.screen.page import lines

from .made import NOW, attempt, run_status, texts

PROGRESS = Progress(
    step=500,
    total=1000,
    reported=NOW - 2,
    pace=2,
    loss=Metric("train/loss", 0.25),
    curve=[4, 3, 2, 1],
    speed=Metric("train/samples_per_second", 812.3),
    slowest_rank=3,
    slowest_lag=0.04,
    utilization=0.93,
    memory_gb=38.2,
    others=[Metric("train/lr", 0.001), Metric("val/loss", 0.5)],
)


def running(walltime: int | None = None) -> Detail:
    first = attempt(0, "ended", ending="preempted", code=143, started=NOW - 600, ended=NOW - 300)
    member = MemberStatus(0, "running", None, [first, attempt(1)])
    phases = [Phase("queued", NOW - 90, NOW - 60), Phase("running", NOW - 60, None)]
    hosts = [HostRanks("n1", range(4)), HostRanks("n2", range(4, 5))]
    excerpt = Excerpt("the end of rank 0's log", [f"line {number}" for number in range(40)])
    now = run_status([member], walltime=walltime)
    return Detail(now, member, PROGRESS, phases, hosts, excerpt)


def test_a_run_at_80_columns() -> None:
    found = texts(lines(running(walltime=3600), NOW, 80, 24))
    table = [line for line in found if " n1" in line and "20" in line]
    assert [line.split()[:2] for line in table] == [["0", "preempted"], ["1", "running"]]
    assert [line for line in found if line not in table] == [
        "state     running",
        "site      big, job 7, submitted 90s ago",
        "attempt  state      code  began                took  host",
        "phases    queued 30s · running 60s",
        "hosts     n1 ranks 0-3  n2 rank 4",
        "step      ██████████░░░░░░░░░░  50% 500/1,000  2 steps/s  2s ago",
        "left      4m to the last step; the walltime ends 54m later",
        "loss      0.25  █▆▃▁  (train/loss)",
        "speed     812.3 samples/s; slowest rank 3, 4% of a step behind",
        "devices   in use 93%, 38.2 GB",
        "metrics   train/lr 0.001 · val/loss 0.5",
        "── the end of rank 0's log ─────────────────────────────────────────────────────",
        *(f"line {number}" for number in range(30, 40)),
    ]
    assert len(found) == 24


def test_what_it_uses_and_advice() -> None:
    node = NodeUse("n1", 600.0, 7.9, 8, 64, 2 << 30, 64 << 30, 256 << 30, 0.0, 0.0, 0.0, 0.0)
    use = with_advice(Use([node], 1), Facts(), 0.41)
    detail = running()._replace(use=use, progress=PROGRESS._replace(data_wait=0.41))
    found = texts(lines(detail, NOW, 80, 24))
    at = found.index("use       waiting for data 41%, 7.9 of 8 CPUs, memory 2.0 GiB of 64.0 GiB")
    assert found[at + 1].startswith("          it waits for data 41% of the time")
    assert sum("waiting for data" in line for line in found) == 1
    without = texts(lines(detail._replace(use=None), NOW, 80, 24))
    assert sum("waiting for data" in line for line in without) == 1


def test_a_walltime_that_comes_first_is_said() -> None:
    found = texts(lines(running(walltime=120), NOW, 80, 24))
    assert "left      60s to the walltime, before the last step, which needs 4m" in found


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("height", [5, 24, 60])
def test_every_line_fits(width: int, height: int) -> None:
    found = texts(lines(running(walltime=120), NOW, width, height))
    assert max(map(len, found)) <= width
    assert found[-1] == "line 39"


def test_one_that_failed() -> None:
    failure = Failure(1, 3, "n2")
    hostile = Excerpt("rank 3 on \x1b]0;n2", [])._replace(lines=["x"])
    odd = Detail(running().status, running().member, Progress(), [], [HostRanks("\x1b[2J", None)], hostile)
    assert "\x1b" not in "".join(texts(lines(odd, NOW, 80, 24)))
    last = attempt(0, "ended", ending="failed", code=1, ended=NOW, failure=failure)
    member = MemberStatus(0, "ended", "failed", [last])
    now = run_status(
        [member], state="ended", ending="failed", code=1, reason="rank 3 on n2 failed first: exit code 1"
    )
    excerpt = Excerpt("rank 3 on n2 failed first: exit code 1", ["ValueError: the loss is \x1b[31mnan"])
    found = texts(lines(Detail(now, member, Progress(), [], [], excerpt), NOW, 80, 24))
    assert found[0] == "state     ended, failed (code 1)"
    assert found[-1] == r"ValueError: the loss is \x1b[31mnan"
    assert sum("rank 3 on n2 failed first: exit code 1" in line for line in found) == 2
    assert not any(line.startswith(("left", "step", "why")) for line in found)


def test_silence_stands_out() -> None:
    silent = [
        span for line in lines(running()._replace(silent_since=NOW - 125), NOW, 80, 24) for span in line
    ]
    assert [span.style for span in silent if span.text == "no output for 2m"] == ["yellow"]


def test_one_that_waits() -> None:
    member = MemberStatus(0, "pending", None, [], "others come first (Priority)", expected_start=NOW + 600)
    now = run_status([member], state="pending", reason="others come first (Priority)")
    found = texts(lines(Detail(now, member, Progress()), NOW, 80, 24))
    assert found[:2] == ["state     pending", "why       others come first (Priority)"]
    assert found[2].startswith("starts    at about 2026-11-") and found[2].endswith(", in 10m")


def test_a_member_of_an_array() -> None:
    members = [
        MemberStatus(0, "ended", "done", [attempt(0, "ended", ending="done", code=0)]),
        MemberStatus(1, "running", None, [attempt(2)]),
        MemberStatus(2, "pending", None, []),
    ]
    now = run_status(members)
    chosen = chosen_member(now, None)
    found = texts(lines(Detail(now, chosen, Progress()), NOW, 80, 24))
    assert "members   1/3 done, 1 running, 1 pending" in found
    assert "member    1 of 0-2: running; ← → show others" in found
    assert any(line.startswith("1.2") for line in found)


def test_the_member_that_a_reader_wants_to_see() -> None:
    states = [("ended", "done"), ("running", None), ("ended", "failed"), ("pending", None)]
    members = [MemberStatus(at, state, ending, []) for at, (state, ending) in enumerate(states)]
    now = run_status(members)
    assert chosen_member(now, None).member == 2
    assert chosen_member(now, 3).member == 3
    assert chosen_member(run_status(members[:2]), None).member == 1
    assert chosen_member(run_status(members[:1]), None).member == 0


def test_many_hosts_are_counted() -> None:
    detail = running()._replace(hosts=[HostRanks(f"n{number}", None) for number in range(300)])
    assert any(line.endswith("and 292 more") for line in texts(lines(detail, NOW, 80, 24)))
