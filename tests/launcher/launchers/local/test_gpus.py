from __future__ import annotations

from pathlib import Path

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.launchers.local.this_host import gpus_here, masked

from .conftest import Run


def test_by_what_the_drivers_show(tmp_path: Path) -> None:
    assert gpus_here({}, tmp_path) == 0
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    for number, units in enumerate((0, 440, 440)):
        (nodes / str(number)).mkdir(parents=True)
        (nodes / str(number) / "properties").write_text(f"cpu_cores_count 0\nsimd_count {units}\n")
    assert gpus_here({}, tmp_path) == 2
    for number in range(4):
        (tmp_path / "proc/driver/nvidia/gpus" / str(number)).mkdir(parents=True)
    assert gpus_here({}, tmp_path) == 4
    assert gpus_here({"CUDA_VISIBLE_DEVICES": "0,2"}, tmp_path) == 2


def test_a_mask_of_all_where_none_is_set(tmp_path: Path) -> None:
    assert masked({}, tmp_path) == {}
    for number in range(4):
        (tmp_path / "proc/driver/nvidia/gpus" / str(number)).mkdir(parents=True)
    assert masked({}, tmp_path) == {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    assert masked({"CUDA_VISIBLE_DEVICES": "2,3"}, tmp_path) == {}


def test_each_rank_sees_its_own_devices(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("castoff.launcher.launchers.local.this_host._nvidia", lambda root: 4)
    shown = run(
        ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES $CASTOFF_DEVICE"], 2, environment={}, devices_per_rank=2
    )
    assert sorted(shown.output.splitlines()) == ["[0] 0,1 0", "[1] 2,3 0"]
    with pytest.raises(CastoffError, match=r"3 ranks with 2 devices each need 6, but this host has 4"):
        run(["true"], 3, environment={}, devices_per_rank=2)
    monkeypatch.setattr("castoff.launcher.launchers.local.this_host._nvidia", lambda root: 0)
    monkeypatch.setattr("castoff.launcher.launchers.local.this_host._amd", lambda root: 0)
    assert (
        "so each rank sees all that there are"
        in run(["true"], 3, environment={}, devices_per_rank=2).messages
    )
