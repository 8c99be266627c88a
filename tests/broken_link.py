"""`python broken_link.py ORDERS PORT`: ssh's ProxyCommand, a link that breaks, stalls or is slow.

ORDERS is a file with one line: how many bytes pass towards the machine before the link `cut`s or `stall`s, or
how many pass in a second: `cut 1234`, `stall 1234`, `slow 20000`. No file, or none of these: nothing is done.
`cut-back 1234` counts the bytes that come from the machine. The count begins anew with each connection, and
what has passed each way is in ORDERS.passed.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from pathlib import Path


def _orders(path: str) -> tuple[str, int]:
    try:
        kind, count = Path(path).read_text().split()
    except (OSError, ValueError):
        return "", 0
    return kind, int(count)


def main(orders: str, port: int) -> None:
    """Forward bytes both ways."""
    kind, count = _orders(orders)
    machine = socket.create_connection(("127.0.0.1", port))
    counted = 0 if kind != "cut-back" else 1
    left = count
    theirs = machine.fileno()
    passed = [0, 0]
    while True:
        ready, _, _ = select.select([0, theirs], [], [])
        for source in ready:
            data = os.read(source, 4096)
            if not data:
                return
            passed[source != 0] += len(data)
            Path(f"{orders}.passed").write_text(f"{passed[0]} {passed[1]}")
            is_counted = (source == 0) == (counted == 0)
            if kind.startswith(("cut", "stall")) and is_counted:
                data, left = data[:left], left - len(data)
            if source == 0:
                machine.sendall(data)
            else:
                os.write(1, data)
            if kind.startswith(("cut", "stall")) and left <= 0:
                if kind == "stall":
                    time.sleep(3600)
                return
            if kind == "slow":
                time.sleep(len(data) / count)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
