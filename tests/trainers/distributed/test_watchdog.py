"""Ranks that are gone, stopped or stuck: the others end, and say which, where, and since which step."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import Mock

import psutil
import pytest
import torch
import torch.distributed as dist
from torch import nn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.config import Parallel
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed import watchdog
from castoff.trainers.distributed.errors import RanksLost
from castoff.trainers.distributed.failures import end
from castoff.trainers.distributed.health_check import Answer, RankHealthCheck, Verdict, judge
from castoff.trainers.distributed.process_group import (
    RankContext,
    cleanup_ddp,
    initialize_ddp,
    record_flights,
)
from castoff.trainers.distributed.watchdog import Watchdog
from tests import patience
from tests.patience import until
from tests.trainers.toys import Ranks, Toy, config, run

HOST = socket.gethostname()


def answer(rank: int, step: int = 7, state: Any = "waits", doing: str = "in backward") -> Answer:
    return Answer(rank, f"node{rank}", step, state, doing)


# --- What is said ------------------------------------------------------------------------------------


def test_a_rank_that_does_not_answer_is_named_with_its_last_step() -> None:
    verdict = judge([answer(2), answer(0, step=6)], 3, {1: "node1"})
    assert verdict.reporter == 0
    assert verdict.lines[0] == "rank 1 (node1) does not answer; the last step that it took part in is 7"
    assert verdict.lines[1:] == [
        "rank 0 waited after step 6: in backward",
        "rank 2 waited after step 7: in backward",
    ]


def test_a_rank_in_code_of_its_own_is_not_a_victim() -> None:
    stuck = answer(1, state="busy", doing="in load (data.py:3)")
    first, *more = judge([answer(0), stuck, answer(2)], 3, {}).lines
    assert first == (
        "rank 1 (node1) is busy after step 7: in load (data.py:3); it has not reached the point where "
        "the others wait"
    )
    assert more == ["ranks 0, 2 waited after step 7: in backward"]


def test_a_rank_with_an_error_of_its_own_comes_first_and_reports_nothing() -> None:
    verdict = judge([answer(0, state="ended", doing="ValueError: no"), answer(2)], 3, {})
    assert verdict.reporter == 2
    assert verdict.lines[:2] == [
        "rank 0 (node0) ended after step 7: ValueError: no",
        "rank 1 does not answer; the last step that it took part in is 7",
    ]


def test_ranks_that_wait_for_different_things() -> None:
    lines = judge([answer(0, doing="for all to reach 'x'"), answer(1)], 2, {}).lines
    assert lines == [
        "the ranks wait for different things, so none of them can continue",
        "rank 0 waited after step 7: for all to reach 'x'",
        "rank 1 waited after step 7: in backward",
    ]


def test_nobody_is_missing() -> None:
    assert (
        judge([answer(0), answer(1)], 2, {})
        .lines[0]
        .startswith("all ranks answer, and wait at the same point")
    )


def test_many_are_counted() -> None:
    verdict = judge([answer(rank) for rank in range(1, 4000)], 4096, {4000: "node4000"})
    assert verdict.reporter == 1
    assert len(verdict.lines) == 8 + 1 + 1
    assert verdict.lines[8:] == [
        "and 89 more such ranks",
        "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 3991 more waited after step 7: in backward",
    ]


def test_only_one_rank_reports_it_in_full() -> None:
    verdict = Verdict(0, ["rank 1 does not answer", "rank 0 waited"])
    assert str(RanksLost(verdict, 0)) == "rank 1 does not answer\nrank 0 waited"
    assert str(RanksLost(verdict, 2)) == "rank 1 does not answer"
    assert [RanksLost(verdict, rank).reporting_rank for rank in (0, 2)] == [0, 0]


# --- The roll call, of many ranks in one process --------------------------------------------------------


def calls(count: int, world_size: int) -> list[RankHealthCheck]:
    """The first ranks' parts in it."""
    store: Any = vars(dist)["HashStore"]()  # as TCPStore, but that threads may share it
    for rank in range(count, world_size):
        store.set(f"castoff/host/{rank}", f"node{rank}")
    return [RankHealthCheck(store, rank, world_size, f"node{rank}", "rank 0") for rank in range(count)]


def hold(made: list[RankHealthCheck]) -> list[Verdict]:
    """All of them at once."""
    verdicts: dict[int, Verdict] = {}

    def one(call: RankHealthCheck) -> None:
        verdicts[call.rank] = call.hold("waits", "in backward")

    threads = [threading.Thread(target=one, args=(call,)) for call in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience.SECONDS)
    return [verdicts[call.rank] for call in made]


def test_above_256_ranks_the_same_way() -> None:
    """Two are missing; one verdict for all others."""
    made = calls(298, 300)
    for call in made:
        call.step = 41
        call.window = 0
        call._answer(call._mine("waits", "in backward"))  # for them to be in time
    verdicts = hold(made)
    assert verdicts == verdicts[:1] * 298
    assert verdicts[0].reporter == 0
    assert [line for line in verdicts[0].lines if "does not answer" in line] == [
        f"rank {rank} (node{rank}) does not answer; the last step that it took part in is 41"
        for rank in (298, 299)
    ]


def test_when_all_have_answered_nobody_waits_longer() -> None:
    made = calls(3, 3)
    for call in made:
        call.window = 10 * patience.SECONDS
    made[1].ended("ValueError: no")
    verdicts = hold([made[0], made[2]])
    assert verdicts[0].lines[0] == "rank 1 (node1) ended before the end of the first step: ValueError: no"


def test_a_held_rank_is_noticed_without_waiting() -> None:
    made = calls(2, 2)
    assert not made[1].is_open()
    made[0].window = 0.1
    made[0].hold("waits", "in backward")
    patience.until(made[1].is_open)


def test_a_store_that_does_not_answer_is_reported() -> None:
    """As when rank 0 is stopped: the connection stands, and nobody answers."""
    (call,) = calls(1, 2)
    call.window = 0.1
    call._store = Mock(add=lambda *_: threading.Event().wait())
    (line,) = call.hold("waits", "in backward").lines
    assert line == (
        "rank 0, which keeps the ranks' store, is gone or does not answer; "
        "rank 0 (node0) waits for others before the end of the first step: in backward"
    )


def test_a_loop_that_an_error_leaves_meanwhile_is_not_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both come at the same time: the watch's limit is the one that collectives have."""
    made = calls(2, 2)
    made[1]._answer(made[1]._mine("waits", "in backward"))  # for it to be in time
    place: Any = Mock(rank=0, waits_for=None, health_check=lambda: made[0])
    watch = Watchdog(place, Parallel(start_timeout=0.1, timeout=2.0))
    looked, ended = threading.Event(), Mock()

    def look(thread: int) -> list[Any]:
        looked.set()
        assert watch._over.wait(patience.SECONDS)
        return []

    monkeypatch.setattr(watchdog, "_frames", look)
    monkeypatch.setattr(watchdog, "end", ended)
    with pytest.raises(RanksLost) as lost, watch:
        lose_a_peer_once(looked)
    assert not ended.mock_calls
    assert "is busy" not in str(lost.value)


def lose_a_peer_once(looked: threading.Event) -> NoReturn:
    assert looked.wait(patience.SECONDS)
    raise RuntimeError("gloo: Connection closed by peer")


def test_a_store_that_is_gone_is_not_asked_again() -> None:
    """torch writes a page on standard error about each request that fails."""
    (call,) = calls(1, 2)
    call._store = store = Mock()
    store.compare_set.side_effect = dist.DistNetworkError("Connection reset by peer")
    assert call.first_to_report("this") == 0
    call.ended("ValueError: no")
    call.has_reported()
    call.linger()
    assert len(store.mock_calls) == 1


# --- Real ranks -----------------------------------------------------------------------------------------

LIMIT = 4.0
"""Seconds, of which half are for the answers. The first step has an hour."""


def until_ended(what: Any) -> NoReturn:
    """As `castoff train` ends."""
    me = RankEnv.detect()
    try:
        what()
    except Exception as error:  # noqa: BLE001
        end(error, me, None)
    raise SystemExit(0)


class Troubled(Toy):
    """At the 6th loss the ranks that are named come into trouble."""

    def __init__(self, trouble: dict[int, str]):
        super().__init__(400, dropout=0.0)
        self.trouble = trouble
        self.losses = 0

    def loss(self, model: nn.Module, batch: Any) -> Any:
        self.losses += 1
        trouble = self.trouble.get(int(os.environ["RANK"])) if self.losses == 6 else None
        if trouble == "hangs":
            read_a_file_that_never_comes()
        elif trouble == "fails":
            raise ValueError("a sample is bad")
        elif trouble:
            os.kill(os.getpid(), signal.Signals[trouble])
        return super().loss(model, batch)


def read_a_file_that_never_comes() -> None:
    threading.Event().wait()


def train(task: Toy, fields: dict[str, Any]) -> None:
    me = RankEnv.detect()
    parallel = Parallel(**fields["parallel"])

    def whole() -> None:
        initialize_ddp(me.rank, me.world_size, device="cpu", timeout=parallel.start_timeout)
        trainer = TrainerDDP(me.rank, fields, task)
        trainer.run_training(*trainer.prepare_dataloaders()[:2])

    until_ended(whole)


def trouble(tmp_path: Path, world_size: int, trouble: dict[int, str]) -> dict[int, str]:
    """The logs of the ranks that have none of their own; they must have ended with 1."""
    fields = config(tmp_path / "out") | {"parallel": {"start_timeout": 3600, "timeout": LIMIT}}
    ranks = Ranks(tmp_path / "ranks", world_size)
    ranks.start(train, Troubled(trouble), fields)
    try:
        codes = {
            rank: process.wait(patience.SECONDS)
            for rank, process in enumerate(ranks.processes)
            if not trouble.get(rank, "").startswith("SIG")
        }
    finally:
        ranks.kill()
    assert set(codes.values()) == {1}, "\n".join(ranks.log(rank) for rank in codes)
    return {rank: ranks.log(rank) for rank in codes}


pytest_real = pytest.mark.usefixtures("for_real")


@pytest_real
def test_a_stopped_rank_and_one_that_hangs_are_named_and_the_others_have_their_stacks(tmp_path: Path) -> None:
    logs = trouble(tmp_path, 4, {1: "SIGSTOP", 2: "hangs"})
    said = [line for line in logs[0].splitlines() if line.startswith("castoff train: ")]
    assert (
        said[0] == f"castoff train: rank 1 ({HOST}) does not answer; the last step that it took part in is 5"
    )
    assert re.fullmatch(
        rf"castoff train: rank 2 \({HOST}\) is busy after step 5: in read_a_file_that_never_comes "
        r"\(test_watchdog\.py:\d+\); it has not reached the point where the others wait",
        said[1],
    )
    assert said[2].startswith("castoff train: ranks 0, 3 waited after step 5: in ")
    for rank in (2, 3):
        assert f"castoff train: rank 1 ({HOST}) does not answer" in logs[rank]
        assert "(rank 0 says more)" in logs[rank]
    for log in logs.values():
        assert "most recent call first" in log
    assert "in read_a_file_that_never_comes\n" in logs[2]


@pytest_real
@pytest.mark.long
def test_rank_0_is_stopped_and_with_it_the_store(tmp_path: Path) -> None:
    logs = trouble(tmp_path, 2, {0: "SIGSTOP"})
    assert "castoff train: rank 0 (127.0.0.1), which keeps the ranks' store, is gone or does not" in logs[1]
    assert f"rank 1 ({HOST}) waits for others after step 5" in logs[1]


@pytest_real
def test_a_rank_that_waits_ends_when_its_launcher_has_seen_a_failure(tmp_path: Path) -> None:
    """The launcher's KILL may come much later. Without a failure, TERM asks for a stop."""
    failure = tmp_path / "failure.json"
    fields = config(tmp_path / "out") | {"parallel": {"start_timeout": 3600, "timeout": 3600}}
    ranks = Ranks(tmp_path / "ranks", 2, {"CASTOFF_FAILURE_FILE": str(failure)})
    ranks.start(train, Troubled({1: "SIGSTOP"}), fields)
    try:
        until(lambda: psutil.Process(ranks.processes[1].pid).status() == psutil.STATUS_STOPPED, "its stop")
        failure.touch()
        ranks.processes[0].send_signal(signal.SIGTERM)
        assert ranks.processes[0].wait(patience.SECONDS) == 1
    finally:
        ranks.kill()
    assert f"the launcher ended this rank (TERM) before all ranks had answered; rank 0 ({HOST})" in ranks.log(
        0
    )


@pytest_real
def test_a_rank_that_is_killed_is_named(tmp_path: Path) -> None:
    logs = trouble(tmp_path, 3, {1: "SIGKILL"})
    first = f"castoff train: rank 1 ({HOST}) does not answer; the last step that it took part in is 5"
    assert first in logs[0]
    assert first.removeprefix("castoff train: ") in logs[2]


@pytest_real
def test_a_rank_with_an_error_of_its_own_leaves_word(tmp_path: Path) -> None:
    logs = trouble(tmp_path, 3, {1: "fails"})
    assert "ValueError: a sample is bad" in logs[1]
    assert f"castoff train: rank 1 ({HOST}) ended after step 5: ValueError: a sample is bad\n" in logs[0]


@pytest_real
def test_an_error_of_rank_0_is_not_buried_in_the_others_stacks(tmp_path: Path) -> None:
    """It stays with the store until they have reported it: no connection breaks before."""
    logs = trouble(tmp_path, 3, {0: "fails"})
    assert "ValueError: a sample is bad" in logs[0]
    for rank in (1, 2):
        assert f"rank 0 ({HOST}) ended after step 5: ValueError: a sample is bad" in logs[rank]
        assert "its threads" not in logs[rank]


def disagree() -> None:
    """Rank 0 stops, and rank 1 continues: as if the verdict were not agreed upon."""

    def whole() -> None:
        me = RankEnv.detect()
        place = initialize_ddp(me.rank, me.world_size, device="cpu")
        with Watchdog(place, Parallel(start_timeout=3600, timeout=LIMIT)) as watch:
            for step in range(1, 10):
                if step == 4 and me.rank == 0:
                    place.barrier("the checkpoint of an early stop")
                sum_up(place)
                watch.step_done(step)

    until_ended(whole)


def sum_up(context: RankContext) -> None:
    context.sum(torch.ones(1000))


@pytest_real
def test_ranks_that_disagree_end_and_report_what_each_waits_for(tmp_path: Path) -> None:
    ranks = Ranks(tmp_path / "ranks", 2)
    ranks.start(disagree)
    assert ranks.end() == [1, 1]
    said = ranks.log(0)
    assert "castoff train: not all ranks reached 'the checkpoint of an early stop': " in said, said
    assert "the ranks wait for different things, so none of them can continue\n" in said
    assert "rank 0 waited after step 3: for all ranks to reach 'the checkpoint of an early stop'\n" in said
    assert "rank 1 waited after step 3: in sum " in said


class Looks(threading.Event):
    """Counts how often the watch has looked."""

    count = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.count += 1
        return super().wait(timeout)

    def more(self, number: int) -> None:
        last = self.count + number
        until(lambda: self.count >= last)


def slow_start() -> list[float]:
    """What gloo and the watch allow: during the first step, from then on, and in what may take longer."""
    me = RankEnv.detect()
    place = initialize_ddp(me.rank, me.world_size, device="cpu", timeout=3600)
    seen = []
    watch, looks = Watchdog(place, Parallel(start_timeout=3600, timeout=0.5)), Looks()
    watch._over = looks
    with watch:
        looks.more(30 * me.rank)  # 20 of them are the later limit
        place.barrier("the start")
        seen.append(watch._limit)
        place.sum(torch.ones(1))
        with watch.allow("nothing"):
            seen.append(watch._limit)
        watch.step_done(1)
        seen.append(watch._limit)
        with watch.allow("samples"):
            seen.append(watch._limit)
            looks.more(30 * me.rank)
            place.barrier("samples")
        seen.append(watch._limit)
    cleanup_ddp()
    return seen


@pytest_real
def test_the_first_step_and_what_is_allowed_may_take_long(tmp_path: Path) -> None:
    """The long limit there never fires; the short one would in each of the two waits."""
    wanted = [3600.0, 3600.0, 0.5, 3600.0, 0.5]
    assert run(slow_start, folder=tmp_path, world_size=2) == [wanted, wanted]


def test_alone_nothing_is_watched() -> None:
    before = threading.active_count()
    with Watchdog(RankContext(0, 1, torch.device("cpu")), Parallel(timeout=0.001)) as watch:
        watch.step_done(1)
        assert threading.active_count() == before
        with watch.allow("a checkpoint"):
            assert list(watch.each([1, 2], "in validation")) == [1, 2]


def test_what_is_allowed_to_take_long_is_named_while_it_lasts() -> None:
    watch = Watchdog(RankContext(0, 1, torch.device("cpu")), Parallel())
    watch.beat("in validation")
    with watch.allow("a checkpoint"):
        assert watch._doing == "a checkpoint"
    assert watch._doing == "in validation"


def test_nccl_writes_down_its_last_collectives_unless_set_otherwise() -> None:
    given: dict[str, str] = {}
    record_flights(given)
    assert given == {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
    given = {"TORCH_NCCL_TRACE_BUFFER_SIZE": "9", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}
    record_flights(given)
    assert given == {"TORCH_NCCL_TRACE_BUFFER_SIZE": "9", "TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}
