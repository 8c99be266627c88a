"""How many GPUs a program on this host would see, by what the drivers show and without asking them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from castoff.launcher.ranks.visible import MASKS, shown_by


def gpus_here(environ: Mapping[str, str], root: Path = Path("/")) -> int:
    """NVIDIA's and AMD's; fewer where a mask hides some; 0 where none is known of."""
    found = [_nvidia(root) or _amd(root)]
    found += [shown_by(environ[name]) for name in MASKS if environ.get(name)]
    return min(found)


def masked(environ: Mapping[str, str], root: Path = Path("/")) -> dict[str, str]:
    """A mask of all GPUs, where there are some and no mask shows which of them to use."""
    if any(environ.get(name) for name in MASKS):
        return {}
    for name, count in (("CUDA_VISIBLE_DEVICES", _nvidia(root)), ("ROCR_VISIBLE_DEVICES", _amd(root))):
        if count:
            return {name: ",".join(map(str, range(count)))}
    return {}


def _nvidia(root: Path) -> int:
    with contextlib.suppress(OSError):
        return len(list((root / "proc/driver/nvidia/gpus").iterdir()))
    return 0


def _amd(root: Path) -> int:
    """Nodes of the topology that compute by SIMD units, which its CPUs do not."""
    count = 0
    with contextlib.suppress(OSError):
        for node in (root / "sys/class/kfd/kfd/topology/nodes").iterdir():
            lines = (node / "properties").read_text().splitlines()
            count += any(line.startswith("simd_count ") and line != "simd_count 0" for line in lines)
    return count
