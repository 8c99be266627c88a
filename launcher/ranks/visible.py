"""The devices of a rank, by their indices under variables such as CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from castoff.launcher.errors import PlacementError

TYPE_CHECKING = False  # importing typing would take longer than this whole module
if TYPE_CHECKING:
    from collections.abc import Mapping

MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
"""Variables that show a process only some devices, renumbered from 0."""


def shown_by(mask: str) -> int:
    """The number of devices that a mask shows: two for `0,1`; one with both its tiles for `0.0,0.1`; one for
    `0,-1,1` (CUDA).
    """
    before, count = None, 0
    for entry in mask.split(","):
        if entry.startswith("-") or entry == "NoDevFiles":
            break
        device, dot, _ = entry.partition(".")
        count += not dot or device != before
        before = device
    return count


def within(environ: Mapping[str, str], index: int) -> int | None:
    """The index of a device among the devices that the masks show: 0 if they show one device, None if they
    hide all.

    Raises:
        PlacementError: the masks show several devices, but fewer than `index` + 1.
    """
    for name in MASKS:
        mask = environ.get(name)
        shown = shown_by(mask) if mask else None
        if shown == 0:
            return None
        if shown == 1:
            index = 0
        elif shown is not None and index >= shown:
            raise PlacementError(
                f"this rank's device is number {index} of those that it sees, from 0, but {name}={mask} shows"
                f" it {shown}. Have {name} show as many as the ranks of a node need, start fewer ranks on a"
                " node, or ask for none (devices_per_rank: 0) and choose devices in the program"
            )
    return index


def own_of(environ: Mapping[str, str], index: int) -> dict[str, str]:
    """The variables that let a rank use the device with this index: CASTOFF_DEVICE, and for MIG devices a
    mask.

    A process can use only the first of several MIG devices in CUDA_VISIBLE_DEVICES, so each rank's mask has
    only its own.

    Raises:
        PlacementError: as `within`.
    """
    shown_index = within(environ, index)
    mask = environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if shown_index is None:
        return {}
    if len(mask) > 1 and any(entry.startswith("MIG-") for entry in mask):
        return {"CUDA_VISIBLE_DEVICES": mask[shown_index], "CASTOFF_DEVICE": "0"}
    return {"CASTOFF_DEVICE": str(shown_index)}


def share_of(environ: Mapping[str, str], local: int, each: int) -> dict[str, str]:
    """The variables that show a local rank only its own `each` devices of those that a mask shows; empty
    without a mask.

    If several masks are set, the first in `MASKS` is narrowed: HIP's, for example, counts within ROCR's.

    Raises:
        PlacementError: the mask shows too few devices.
    """
    name = next((name for name in MASKS if environ.get(name)), None)
    if name is None:
        return {}
    devices: list[list[str]] = []
    for entry in environ[name].split(","):
        if entry.startswith("-") or entry == "NoDevFiles":
            break
        device, dot, _ = entry.partition(".")
        if dot and devices and devices[-1][0].startswith(f"{device}."):
            devices[-1].append(entry)
        else:
            devices.append([entry])
    share = devices[local * each : (local + 1) * each]
    if len(share) < each:
        raise PlacementError(
            f"{local + 1} ranks with {each} devices each need {(local + 1) * each}, but this host has"
            f" {len(devices)} ({name}={environ[name]}): start fewer ranks, or give each fewer devices"
        )
    return {name: ",".join(entry for device in share for entry in device), "CASTOFF_DEVICE": "0"}


def shares_of(environ: Mapping[str, str], most: int, each: int) -> list[dict[str, str]]:
    """For each of at most `most` programs, the variables that show it only its own `each` devices of those
    that a mask shows: fewer if there are too few devices, none without a mask.
    """
    shares: list[dict[str, str]] = []
    while len(shares) < most:
        try:
            share = share_of(environ, len(shares), each)
        except PlacementError:
            break
        if not share:
            break
        del share["CASTOFF_DEVICE"]
        shares.append(share)
    return shares
