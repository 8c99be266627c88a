from __future__ import annotations

from pathlib import Path

from launcher.launchers.local.gpus import gpus_here


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
