"""A machine to reach over ssh: a real sshd on this one, with users of several login shells, and a link to it.

It runs in a mount namespace of its own, in which /etc/passwd has users that are root by another name: sshd
starts their login shells as it does everywhere, each in a home of its own. Nothing of it is seen outside.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests import patience
from tests.ports import free_port

SHELLS = {
    "sh": "/bin/sh",
    "bash": "/bin/bash",
    "csh": "/bin/csh",
    "tcsh": "/usr/bin/tcsh",
    "fish": "/usr/bin/fish",
}
"""Users by name, and their login shells."""

PACKAGES = {"sshd": "openssh-server", "ssh": "openssh-client", "fish": "fish", "tcsh": "tcsh"}
"""Programs that it takes, and Debian's packages with them."""

_SETUP = """
set -euo pipefail
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -m 755 /run/sshd
mount --bind "$1/passwd" /etc/passwd
mount --bind "$1/shadow" /etc/shadow
"$2" -D -e -f "$1/sshd_config" </dev/null &
read -r _ || true # until a line comes, or whoever started this has gone, however that ended
"""

LINK = Path(__file__).with_name("broken_link.py")
"""The program that stands between ssh and sshd, see there."""


class RemoteMachine:
    """An sshd, and what a user's own configuration says of it."""

    def __init__(self, folder: Path):
        """Start it; `folder` may have any name.

        Raises:
            RuntimeError: it does not start.
        """
        self.folder = folder
        self.homes = {user: folder / f"home of {user}" for user in SHELLS}
        self.settings = folder / "ssh_config"
        self.link_orders = folder / "link"
        self.port = free_port()
        # Short: a socket's path has 107 bytes at the most.
        self._run = tempfile.TemporaryDirectory(prefix="on-", dir="/tmp")
        self._keys()
        self._files()
        (folder / "bin").mkdir()
        (folder / "bin" / "ssh").write_text(
            f'#!/bin/sh\nexec {shutil.which("ssh")} -F "{self.settings}" "$@"\n'
        )
        (folder / "bin" / "ssh").chmod(0o755)
        self.path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        """PATH with the user's own ssh."""
        self._log = (folder / "sshd.log").open("wb")
        sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin") or "/usr/sbin/sshd"
        self._process = subprocess.Popen(
            [
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "bash",
                "-c",
                _SETUP,
                "sshd",
                str(folder),
                sshd,
            ],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        patience.until(self._is_up, "sshd did not start")

    def close(self) -> None:
        """End it, and all that was started over it."""
        self.disconnect()
        # A line: no end of file comes while a program that another test has forked holds the pipe as well.
        self._process.communicate(b"\n")
        self._log.close()
        self._run.cleanup()

    def disconnect(self) -> None:
        """End the shared connections, as after ten minutes."""
        sockets = Path(self._run.name) / "castoff"
        for path in sockets.glob("*"):
            words = [str(self.folder / "bin" / "ssh"), "-o", f'ControlPath="{path}"', "-O", "exit", "any"]
            subprocess.run(words, check=False, capture_output=True)
        patience.until(lambda: not [*sockets.glob("*")], "a shared connection stays")

    def environment(self, home: Path) -> dict[str, str]:
        """Variables for the laptop's side."""
        return {"PATH": self.path, "XDG_RUNTIME_DIR": self._run.name, "HOME": str(home)}

    def order_link(self, orders: str) -> None:
        """What the link does with the next connections, of which there is none now: see `broken_link`."""
        self.disconnect()
        self.link_orders.write_text(orders)

    def _is_up(self) -> bool:
        if self._process.poll() is not None:
            raise RuntimeError((self.folder / "sshd.log").read_text())
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def _keys(self) -> None:
        for name in ("host_key", "key"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL)

    def _files(self) -> None:
        folder = self.folder
        for home in self.homes.values():
            home.mkdir()
        users = [f"{user}:x:0:0::{self.homes[user]}:{shell}" for user, shell in SHELLS.items()]
        (folder / "passwd").write_text(Path("/etc/passwd").read_text() + "\n".join(users) + "\n")
        shadow = [f"{user}:*:19000:0:99999:7:::" for user in SHELLS]
        (folder / "shadow").write_text(Path("/etc/shadow").read_text() + "\n".join(shadow) + "\n")
        (folder / "sshd_config").write_text(
            f'Port {self.port}\nListenAddress 127.0.0.1\nHostKey "{folder}/host_key"\n'
            f'AuthorizedKeysFile "{folder}/key.pub"\nStrictModes no\nPermitRootLogin yes\n'
            f"PasswordAuthentication no\nUsePAM no\nPidFile none\nPrintMotd yes\n"
            "MaxStartups 100\nMaxSessions 100\n"
        )
        host = (folder / "host_key.pub").read_text().split()
        (folder / "known").write_text(f"[127.0.0.1]:{self.port} {host[0]} {host[1]}\n")
        hosts = "".join(f"Host {user}\n  User {user}\n" for user in SHELLS)
        self.settings.write_text(
            f"{hosts}Host broken\n  User sh\n"
            f'  ProxyCommand {sys.executable} {LINK} "{self.link_orders}" {self.port}\n'
            f'Host *\n  HostName 127.0.0.1\n  Port {self.port}\n  IdentityFile "{folder}/key"\n'
            f'  UserKnownHostsFile "{folder}/known"\n  IdentitiesOnly yes\n  IdentityAgent none\n'
            f"  ServerAliveInterval 2\n  ServerAliveCountMax 2\n"
        )


@contextlib.contextmanager
def remote_machine(folder: Path) -> Iterator[RemoteMachine]:
    """One for as long as this lasts."""
    machine = RemoteMachine(folder)
    try:
        yield machine
    finally:
        machine.close()
