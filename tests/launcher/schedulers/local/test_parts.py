"""Parts of the local scheduler, without jobs."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from castoff.launcher.schedulers.local import control, daemon
from castoff.launcher.schedulers.local.member import Member, Share, Start
from tests.clock import Clock
from tests.launcher.status.test_watch import Made


def test_a_run_that_is_submitted_again_forgets_all_cancellations(tmp_path: Path) -> None:
    run = Made(tmp_path).run
    for member in (None, 0, 12):
        control.cancel(run, member)
    assert control.cancel_requested(run) and control.cancelled_members(run) == {0, 12}
    control.forget_cancellation(run)
    assert not control.cancel_requested(run) and control.cancelled_members(run) == set()


def test_a_member_that_cannot_start_leaves_its_cores_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = object.__new__(daemon._Scheduler)
    scheduler.run = scheduler.plan = scheduler.submission = Mock()
    share = Share([0, 1])
    scheduler.lock, scheduler.mark, scheduler.free, scheduler.running = 0, "", [share], []
    unstarted = Mock()
    monkeypatch.setattr(daemon, "Member", Mock(side_effect=OSError("no such folder")))
    monkeypatch.setattr(scheduler, "_record_unstarted", unstarted)
    for number in range(2):
        scheduler._begin(Start(number, 0, 0))
    assert [call.args[0].member for call in unstarted.call_args_list] == [0, 1]
    assert (scheduler.free, scheduler.running) == ([share], [])


def test_a_member_is_asked_at_its_walltime_and_killed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    member, process = object.__new__(Member), Mock()
    monkeypatch.setattr(Member, "folder", Path("/nowhere"))
    member.deadline, member.kill_at, member.why = clock.now + 60, None, None
    member.process, member.meter = process, Mock(poll=lambda: None)

    def signals(seconds: float) -> list[str]:
        clock.sleep(seconds)
        assert not member.step()
        return [name for name, *_ in process.mock_calls]

    assert signals(59) == []
    assert signals(1) == signals(control.KILL_AFTER - 1) == ["terminate"] and member.why == "walltime"
    assert signals(1) == ["terminate", "kill"]
