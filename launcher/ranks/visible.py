"""Which of its devices a rank is to use, counted among those that variables show it."""

from __future__ import annotations

from castoff.launcher.errors import PlacementError

TYPE_CHECKING = False  # typing itself would cost more than all of this module
if TYPE_CHECKING:
    from collections.abc import Mapping

MASKS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
"""What narrows a process to some devices, and numbers these anew from 0."""


def shown_by(mask: str) -> int:
    """How many devices a mask shows: `0,1` two; `0.0,0.1` one, with both its tiles; `0,-1,1` one (CUDA)."""
    before, count = None, 0
    for entry in mask.split(","):
        if entry.startswith("-") or entry == "NoDevFiles":
            break
        device, dot, _ = entry.partition(".")
        count += not dot or device != before
        before = device
    return count


def within(environ: Mapping[str, str], index: int) -> int | None:
    """The index of a device among those that the masks show; the only one is 0, and None where there is none.

    Raises:
        PlacementError: there are several, but not so many.
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
    """What a rank's environment needs for the device with this index: CASTOFF_DEVICE, and at times a mask.

    Of several MIG devices CUDA shows a process only the first, so each rank is shown its own alone.

    Raises:
        PlacementError: as `within` does.
    """
    found = within(environ, index)
    mask = environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if found is None:
        return {}
    if len(mask) > 1 and any(entry.startswith("MIG-") for entry in mask):
        return {"CUDA_VISIBLE_DEVICES": mask[found], "CASTOFF_DEVICE": "0"}
    return {"CASTOFF_DEVICE": str(found)}


def share_of(environ: Mapping[str, str], local: int, each: int) -> dict[str, str]:
    """What a local rank's environment needs to see its own `each` devices alone, of those that a mask shows.

    The first of several masks is narrowed: HIP's, for example, counts within ROCR's. Nothing, without one.

    Raises:
        PlacementError: it shows too few.
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
    own = devices[local * each : (local + 1) * each]
    if len(own) < each:
        raise PlacementError(
            f"{local + 1} ranks with {each} devices each need {(local + 1) * each}, but this host has"
            f" {len(devices)} ({name}={environ[name]}): start fewer ranks, or give each fewer devices"
        )
    return {name: ",".join(entry for device in own for entry in device), "CASTOFF_DEVICE": "0"}
