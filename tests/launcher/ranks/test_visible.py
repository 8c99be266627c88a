"""The index of a rank's device, among those that masks show it: in Python, and in the shim of scripts."""

from __future__ import annotations

import os
import subprocess

import pytest

from castoff.launcher.config.quantities import cpulist
from castoff.launcher.errors import PlacementError
from castoff.launcher.planning.conditions import Conditions, chosen
from castoff.launcher.planning.machinery import FEATURES
from castoff.launcher.planning.render import template_folder
from castoff.launcher.ranks import RankEnv
from castoff.launcher.ranks.visible import MASKS, own_of, share_of, within
from tests import patience

CASES: list[tuple[dict[str, str], int, str | None]] = [
    ({}, 3, "3"),
    ({"CUDA_VISIBLE_DEVICES": ""}, 3, "3"),
    ({"CUDA_VISIBLE_DEVICES": "4,5,6,7"}, 3, "3"),
    ({"CUDA_VISIBLE_DEVICES": "GPU-a1,GPU-b2"}, 1, "1"),
    ({"CUDA_VISIBLE_DEVICES": "GPU-b2"}, 1, "0"),
    ({"CUDA_VISIBLE_DEVICES": "MIG-b2"}, 1, "0"),
    ({"CUDA_VISIBLE_DEVICES": "3"}, 3, "0"),
    ({"CUDA_VISIBLE_DEVICES": "-1"}, 0, ""),
    ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, 2, ""),
    ({"CUDA_VISIBLE_DEVICES": "2,-1,3"}, 1, "0"),
    ({"CUDA_VISIBLE_DEVICES": "0,1"}, 2, None),
    ({"ROCR_VISIBLE_DEVICES": "0,1,2,3", "HIP_VISIBLE_DEVICES": "0,1"}, 2, None),
    ({"ROCR_VISIBLE_DEVICES": "5", "HIP_VISIBLE_DEVICES": "0"}, 5, "0"),
    ({"ZE_AFFINITY_MASK": "0,2,4,6,8,10"}, 5, "5"),
    ({"ZE_AFFINITY_MASK": "0.0,0.1,1.0,1.1"}, 1, "1"),
    ({"ZE_AFFINITY_MASK": "0.0,0.1,1.0,1.1"}, 2, None),
]
"""Masks, the index of a rank's device without them, and the one among those that they show."""

SEVERAL_MIG = {"CUDA_VISIBLE_DEVICES": "MIG-a1,MIG-b2,MIG-c3"}


def in_script(features: set[str], **environ: str) -> subprocess.CompletedProcess[str]:
    """What the lines of a script make of an environment: the device, and the masks."""
    text = (template_folder() / "machinery" / "device.sh").read_text()
    part = chosen("device", text, Conditions(FEATURES, {"devices", *features}, None, lambda name: (name, "")))
    script = 'castoff_refuse() { echo "$*" >&2; exit 1; }\nset -u\n' + part
    script += f'echo "${{CASTOFF_DEVICE-}}" {" ".join(f"${{{name}-}}" for name in MASKS)}'
    clean = {name: value for name, value in os.environ.items() if name not in (*MASKS, "CASTOFF_DEVICE")}
    return subprocess.run(
        ["sh", "-c", script],
        env={**clean, "RANK": "7", "NODE_RANK": "0", "castoff_device_step": "1", **environ},
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
        check=False,
    )


@pytest.mark.parametrize(("masks", "index", "found"), CASES)
def test_a_device_counts_within_what_a_rank_sees(
    masks: dict[str, str], index: int, found: str | None
) -> None:
    if found is not None:
        assert within(masks, index) == (int(found) if found else None)
        assert own_of(masks, index) == ({"CASTOFF_DEVICE": found} if found else {})
        return
    with pytest.raises(PlacementError) as refused:
        within(masks, index)
    (name, mask), *_ = sorted(masks.items())
    assert f"number {index} of those that it sees, from 0, but {name}={mask} shows it 2" in str(refused.value)


@pytest.mark.parametrize(("masks", "index", "found"), CASES)
def test_scripts_count_alike(masks: dict[str, str], index: int, found: str | None) -> None:
    answer = in_script(set(), LOCAL_RANK=str(index), **masks)
    if found is not None:
        assert answer.stderr == ""
        assert answer.stdout.split() == [*found.split(), *(masks[name] for name in MASKS if masks.get(name))]
    else:
        assert answer.returncode == 1
        assert f"the device of rank 7 is number {index} of those that it sees, from 0, but" in answer.stderr


@pytest.mark.parametrize(("local", "own"), [(0, "MIG-a1"), (2, "MIG-c3")])
def test_of_several_mig_devices_each_rank_sees_its_own_alone(local: int, own: str) -> None:
    """CUDA would show every rank the first."""
    assert own_of(SEVERAL_MIG, local) == {"CASTOFF_DEVICE": "0", "CUDA_VISIBLE_DEVICES": own}
    assert in_script(set(), LOCAL_RANK=str(local), **SEVERAL_MIG).stdout.split() == ["0", own]
    with pytest.raises(PlacementError, match="shows it 3"):
        own_of(SEVERAL_MIG, 3)
    assert "shows it 3" in in_script(set(), LOCAL_RANK="3", **SEVERAL_MIG).stderr


@pytest.mark.parametrize(
    ("theirs", "local", "found"),
    [
        (None, 1, ["1", "3,2,1,0"]),
        ("0,1,2,3", 1, ["1", "3,2,1,0"]),  # all of a node, as Slurm shows a step
        ("GPU-a,GPU-b,GPU-c,GPU-d", 1, ["1", "3,2,1,0"]),
        ("2", 1, ["0", "2"]),  # by the launcher, for this rank alone
        ("0,1", 1, ["1", "0,1"]),
        ("0,1", 2, None),
        ("MIG-a,MIG-b,MIG-c,MIG-d", 1, ["0", "MIG-b"]),
        ("-1", 1, ["-1"]),  # no device: the program runs on CPUs
    ],
)
def test_castoffs_mask_replaces_none_that_shows_fewer_devices(
    theirs: str | None, local: int, found: list[str] | None
) -> None:
    """Numbers of the node would mean other devices to a rank that is shown some of them, or none."""
    environ = {} if theirs is None else {"CUDA_VISIBLE_DEVICES": theirs}
    variable = {"castoff_device_variable": "CUDA_VISIBLE_DEVICES", "castoff_visible": "3,2,1,0"}
    answer = in_script({"visible"}, LOCAL_RANK=str(local), **environ, **variable)
    assert answer.stdout.split() == (found or []), answer.stderr


@pytest.mark.parametrize(
    ("theirs", "found"),
    [
        (None, ["0", "2,3"]),
        ("0,1,2,3", ["0", "2,3"]),
        ("0,1", ["0", "0,1"]),
        ("0,1,2", None),
        ("5", ["0", "5"]),
    ],
)
def test_nor_does_a_mask_for_each_rank(theirs: str | None, found: list[str] | None) -> None:
    environ = {} if theirs is None else {"CUDA_VISIBLE_DEVICES": theirs}
    variable = {"castoff_device_variable": "CUDA_VISIBLE_DEVICES", "castoff_masks": "0,1 2,3"}
    answer = in_script({"masks"}, LOCAL_RANK="1", castoff_device_step="0", **environ, **variable)
    assert answer.stdout.split() == (found or [])
    assert (
        found
        or "rank 7 is to have device 2,3 of its node, but CUDA_VISIBLE_DEVICES=0,1,2 shows it 3"
        in answer.stderr
    )


@pytest.mark.parametrize(
    ("theirs", "local", "found"),
    [("0,1", 1, "1"), ("0,1", 2, "0"), ("2,3", 3, "1"), ("2", 3, "0")],
)
def test_an_index_for_each_rank(theirs: str, local: int, found: str) -> None:
    indices = {"castoff_device_indices": "0 1 0 1", "castoff_device_step": "0"}
    answer = in_script({"indices"}, LOCAL_RANK=str(local), CUDA_VISIBLE_DEVICES=theirs, **indices)
    assert answer.stdout.split() == [found, theirs]


@pytest.mark.parametrize("step", [1, 2, 4])
def test_ranks_that_see_no_more_than_they_need_use_the_first(step: int) -> None:
    mask = ",".join(map(str, range(step)))
    answer = in_script(set(), LOCAL_RANK="3", CUDA_VISIBLE_DEVICES=mask, castoff_device_step=str(step))
    assert answer.stdout.split() == ["0", mask]


def test_a_rank_whose_cores_are_not_beside_its_device_says_so() -> None:
    mine = sorted(os.sched_getaffinity(0))
    values = {"castoff_better": "0-3:4-7", "castoff_launcher_name": "srun", "LOCAL_RANK": "1"}
    far = in_script({"near"}, castoff_near="9000-9003 9004-9007,9010", **values)
    assert far.stdout.split() == ["1"]
    assert far.stderr == (
        f"castoff: rank 7 runs on CPUs {cpulist(mine)}, but its device is beside CPUs 9004-9007,9010, so data"
        " crosses the node. srun or a flag for it binds ranks so; to bind each beside its device, write in"
        " the job file binding: 0-3:4-7\n"
    )
    for near in (f"9000 {mine[-1]}", f"9000 9001-9003,{mine[0]}-9000", f"9000 0-{mine[0]}"):
        assert in_script({"near"}, castoff_near=near, **values).stderr == ""
    assert in_script({"near"}, castoff_near="9000 9001", **{**values, "NODE_RANK": "1"}).stderr == ""


def test_a_wrapper_that_shows_each_rank_one_device() -> None:
    """As many people's own do, between castoff and the program."""
    reported = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4", "NODE_RANK": "0"}
    castoff = {"CASTOFF_LAUNCHER": "local", "CASTOFF_RANK": "3/4", "CASTOFF_DEVICE": "3"}
    assert RankEnv.detect({**reported, **castoff}).device == 3
    assert RankEnv.detect({**reported, **castoff, "CUDA_VISIBLE_DEVICES": "3"}).device == 0


@pytest.mark.parametrize(
    ("mask", "own"),
    [
        ({"CUDA_VISIBLE_DEVICES": "4,5,6,7"}, {"CUDA_VISIBLE_DEVICES": "6,7"}),
        ({"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b,GPU-c,GPU-d,GPU-e"}, {"CUDA_VISIBLE_DEVICES": "GPU-c,GPU-d"}),
        (
            {"ROCR_VISIBLE_DEVICES": "2,3,4,5", "HIP_VISIBLE_DEVICES": "0,1,2,3"},
            {"HIP_VISIBLE_DEVICES": "2,3"},
        ),
        ({"ZE_AFFINITY_MASK": "0.0,0.1,1,2,3.0"}, {"ZE_AFFINITY_MASK": "2,3.0"}),
    ],
)
def test_several_devices_of_a_rank(mask: dict[str, str], own: dict[str, str]) -> None:
    assert share_of(mask, 1, 2) == {**own, "CASTOFF_DEVICE": "0"}
    with pytest.raises(PlacementError, match="3 ranks with 2 devices each need 6, but this host has"):
        share_of(mask, 2, 2)


def test_several_devices_where_no_mask_shows_any() -> None:
    assert share_of({"CUDA_VISIBLE_DEVICES": ""}, 0, 2) == {}
