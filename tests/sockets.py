"""What processes listen on; of its own, as ranks that import it would wait for pytest and torch."""

from __future__ import annotations

from collections.abc import Iterable

import psutil


def listening(processes: Iterable[psutil.Process]) -> list[str]:
    """Where processes listen, as `ss -ltnp` shows it: addresses, of each socket once."""
    sockets = {
        each.laddr
        for process in processes
        for each in process.net_connections("inet")
        if each.status == psutil.CONN_LISTEN
    }
    return [address.ip for address in sockets]
