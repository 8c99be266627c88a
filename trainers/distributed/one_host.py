"""Ranks on a single host connect over its loopback interface, so that other hosts cannot reach them.

torch's store has no password, and its server listens on every interface: anyone who reaches the port can set
keys. docs/reference/ranks.md lists what listens where.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import MutableMapping
from datetime import timedelta

from castoff.launcher.ranks import RankEnv
from castoff.trainers.distributed.private_torch import Store, TCPStore

_LOOPBACK = "127.0.0.1"

_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""Variables with the interface that each backend listens on; by default other hosts can reach it."""


def on_one_host(me: RankEnv, rank: int, world_size: int, master_addr: str) -> bool:
    """Whether all ranks are on this host; every rank gets the same result."""
    if _is_loopback(master_addr):
        return True
    # If a user's script sets only RANK, LOCAL_WORLD_SIZE is guessed, and the guess may differ between ranks.
    is_known = me.launcher != "environment" or me.sources.get("local_world_size") == "LOCAL_WORLD_SIZE"
    return is_known and (me.rank, me.world_size, me.local_world_size) == (rank, world_size, world_size)


def _is_loopback(name: str) -> bool:
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def stay_within(environ: MutableMapping[str, str]) -> None:
    """Make the backends listen on the loopback interface, unless the user has chosen another."""
    interface = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if interface is not None:
        for variable in _INTERFACES:
            environ.setdefault(variable, interface)


def meeting_store(rank: int, world_size: int, port: int, timeout: float) -> Store:
    """Make torch's store, served by rank 0; returns when all ranks have connected.

    Raises:
        OSError: another process listens on the port.
        DistError: other ranks do not connect.
    """
    listening = None
    if rank == 0:
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch does
            server.bind((_LOOPBACK, port))
            listening = server.detach()  # the store closes it
    limit = timedelta(seconds=timeout)
    return TCPStore(_LOOPBACK, port, world_size, rank == 0, limit, master_listen_fd=listening)
