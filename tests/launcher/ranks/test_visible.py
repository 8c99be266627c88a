"""The index of a rank's device, among those that masks show it: in Python, and in the shim of scripts."""

from __future__ import annotations

import os
import subprocess

import pytest

from launcher.errors import PlacementError
from launcher.planning.render import template_folder
from launcher.ranks import RankEnv
from launcher.ranks.visible import MASKS, within
from tests import patience

CASES = [
    ({}, 3, 3),
    ({"CUDA_VISIBLE_DEVICES": ""}, 3, 3),
    ({"CUDA_VISIBLE_DEVICES": "4,5,6,7"}, 3, 3),
    ({"CUDA_VISIBLE_DEVICES": "GPU-a1,MIG-b2"}, 1, 1),
    ({"CUDA_VISIBLE_DEVICES": "3"}, 3, 0),
    ({"CUDA_VISIBLE_DEVICES": "0,1"}, 2, None),
    ({"ROCR_VISIBLE_DEVICES": "0,1,2,3", "HIP_VISIBLE_DEVICES": "0,1"}, 2, None),
    ({"ROCR_VISIBLE_DEVICES": "5", "HIP_VISIBLE_DEVICES": "0"}, 5, 0),
    ({"ZE_AFFINITY_MASK": "0,2,4,6,8,10"}, 5, 5),
    ({"ZE_AFFINITY_MASK": "0.0,0.1,1.0,1.1"}, 1, 1),
    ({"ZE_AFFINITY_MASK": "0.0,0.1,1.0,1.1"}, 2, None),
]


@pytest.mark.parametrize(("masks", "index", "found"), CASES)
def test_a_device_counts_within_what_a_rank_sees(
    masks: dict[str, str], index: int, found: int | None
) -> None:
    if found is not None:
        assert within(masks, index) == found
        return
    with pytest.raises(PlacementError) as refused:
        within(masks, index)
    (name, mask), *_ = sorted(masks.items())
    assert f"number {index} of those that it sees, from 0, but {name}={mask} shows it 2" in str(refused.value)


@pytest.mark.parametrize(("masks", "index", "found"), CASES)
def test_scripts_count_alike(masks: dict[str, str], index: int, found: int | None) -> None:
    part = (template_folder() / "machinery" / "nodes" / "device.sh").read_text()
    script = 'castoff_refuse() { echo "$*" >&2; exit 1; }\nset -u\n' + part + 'echo "$CASTOFF_DEVICE"'
    clean = {name: value for name, value in os.environ.items() if name not in MASKS}
    reported = {**clean, **masks, "RANK": "7", "LOCAL_RANK": str(index), "castoff_device_step": "1"}
    answer = subprocess.run(
        ["sh", "-c", script],
        env=reported,
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
        check=False,
    )
    if found is not None:
        assert (answer.stdout, answer.stderr) == (f"{found}\n", "")
    else:
        assert answer.returncode == 1
        assert f"the device of rank 7 is number {index} of those that it sees, from 0, but" in answer.stderr


def test_a_wrapper_that_shows_each_rank_one_device() -> None:
    """As many people's own do, between castoff and the program."""
    reported = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4", "NODE_RANK": "0"}
    castoff = {"CASTOFF_LAUNCHER": "local", "CASTOFF_RANK": "3/4", "CASTOFF_DEVICE": "3"}
    assert RankEnv.detect({**reported, **castoff}).device == 3
    assert RankEnv.detect({**reported, **castoff, "CUDA_VISIBLE_DEVICES": "3"}).device == 0
