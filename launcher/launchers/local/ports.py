"""The port where ranks meet that castoff itself starts: derived from the job's id if that port is free."""

from __future__ import annotations

import socket

from castoff.launcher.errors import CastoffError
from castoff.launcher.ranks.rendezvous import PORTS, derived_port


def free_port(job_id: str) -> int:
    """The port derived from `job_id`, or the next one that is free here now. torch binds it later.

    Raises:
        CastoffError: every port of the range is taken.
    """
    first = PORTS.index(derived_port(job_id))
    for step in range(len(PORTS)):
        if is_free(port := PORTS[(first + step) % len(PORTS)]):
            return port
    raise CastoffError(
        f"every port of {PORTS[0]}-{PORTS[-1]} on this host is taken; `ss -tlnp` shows by whom"
    )


def is_free(port: int) -> bool:
    """Whether torch could bind `port` now, on every address as its store does.

    Without SO_REUSEADDR, so that a port whose last connections still linger counts as taken.
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
