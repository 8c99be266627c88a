"""What this host offers to the ranks that castoff starts: a rendezvous port, and GPUs."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from pathlib import Path

from castoff.launcher.errors import CastoffError
from castoff.launcher.ranks.rendezvous import PORTS, derived_port
from castoff.launcher.ranks.visible import MASKS, shown_by


def free_port(job_id: str) -> int:
    """Return the port derived from `job_id`, or the next free port after it; torch binds the port later.

    Raises:
        CastoffError: every port in the range is taken.
    """
    first = PORTS.index(derived_port(job_id))
    for step in range(len(PORTS)):
        if is_free(port := PORTS[(first + step) % len(PORTS)]):
            return port
    raise CastoffError(
        f"every port of {PORTS[0]}-{PORTS[-1]} on this host is taken; `ss -tlnp` shows by whom"
    )


def is_free(port: int) -> bool:
    """Whether torch could bind `port` now on every address, as its store does.

    SO_REUSEADDR is not set, so that a port with lingering connections counts as taken.
    """
    both = socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if both else socket.AF_INET, socket.SOCK_STREAM) as probe:
        if both:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def gpus_here(environ: Mapping[str, str], root: Path = Path("/")) -> int:
    """Count NVIDIA's and AMD's GPUs on this host, without those that a mask hides; 0 if none are known."""
    counts = [_nvidia(root) or _amd(root)]
    counts += [shown_by(environ[name]) for name in MASKS if environ.get(name)]
    return min(counts)


def masked(environ: Mapping[str, str], root: Path = Path("/")) -> dict[str, str]:
    """Return a mask of all GPUs; empty if there are no GPUs, or a mask exists already."""
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
    """Count AMD's GPUs: the nodes of the kernel's topology that have SIMD units, which CPUs lack."""
    count = 0
    with contextlib.suppress(OSError):
        for node in (root / "sys/class/kfd/kfd/topology/nodes").iterdir():
            lines = (node / "properties").read_text().splitlines()
            count += any(line.startswith("simd_count ") and line != "simd_count 0" for line in lines)
    return count
