"""Numbers in a scheduler's answer that no such number can be: they tell nothing, and end nobody."""

from __future__ import annotations

import json

import pytest

from castoff.launcher.schedulers.flux import jobs as flux
from castoff.launcher.schedulers.job_info import whole
from castoff.launcher.schedulers.pbs import jobs as pbs
from castoff.launcher.schedulers.slurm import jobs as slurm
from castoff.launcher.schedulers.slurm.queue import SlurmQueue

from .pages import page

HUGE = ["9" * 10, "9" * 400, "9" * 5000, "-" + "9" * 5000]
"""Python itself reads no more than 4300 digits."""


@pytest.mark.parametrize("number", HUGE)
class TestAbsurd:
    def test_slurms_history(self, number: str) -> None:
        times = "|".join([number] * 3)
        for code in (f"{number}:0", f"0:{number}", f"{number}:{number}"):
            (info,) = slurm.parse_history(page(f"7|FAILED|{code}|{times}|sbatch x\n"))
            assert info.exit_code in (None, 0) and info.ending == "failed"
        assert [one.task for one in slurm.parse_history(page(f"7_{number}|FAILED|1:0|||| \n"))] == []

    def test_slurms_queue(self, number: str) -> None:
        line = f"7|{number}|PENDING|Resources|{number}|{number}|{number}|/x\n"
        for info in slurm.parse_queue(page(line)):
            assert "it waits for nodes" in info.pending_reason

    def test_slurms_configuration(self, number: str) -> None:
        answer = f"MaxArraySize = {number}\nSchedulerParameters = max_array_tasks={number}\n"
        assert SlurmQueue.read_configuration(answer).largest_array is None

    def test_pbss_queue(self, number: str) -> None:
        text = f"Job Id: 7.head\n    job_state = F\n    Exit_status = {number}\n    substate = {number}\n\n"
        (info,) = pbs.parse_queue(page(text))
        assert info.exit_code is None
        assert pbs.parse_queue(page(f"Job Id: 7[{number}].head\n    job_state = F\n\n")) == []

    def test_flux(self, number: str) -> None:
        code = number if len(number) < 4000 else "1e999"
        for status in ("FAILED", "SCHED"):
            record = {"id": 7, "status": status, "dependencies": 3, "exception": 3, "t_run": 1}
            text = json.dumps(record)[:-1] + f', "returncode": {code}, "t_submit": {code}}}'
            (info,) = flux.parse_queue(page(text))
            assert info.exit_code is None and info.submitted in (None, 9999999999.0)


def test_whole() -> None:
    assert [whole(text) for text in ("0", "17", " -3 ", "", None, "1.5", "٣", "0x1", "1_000")] == [
        *(0, 17, -3, None, None, None, None, None, None)
    ]
