"""A cluster for people: it stays until it is told to end.

python -m MODULE up                     start it
python -m MODULE shell HOST [COMMAND…]  a shell on one of its hosts, or a command there
python -m MODULE down                   end it, and all that runs on it
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests import patience
from tests.cluster import HEAD, NODES
from tests.cluster.base import Cluster
from tests.cluster.hosts import Doors, why_no_hosts


class Refused(Exception):
    """What was asked for cannot be done; the text says why, and what to do."""


class Kind(NamedTuple):
    """What sort of cluster it is."""

    module: str
    """The one that has this command."""
    title: str
    start: Callable[[Path, int], Cluster]
    """Starts one in a folder, held by a descriptor."""
    packages: Mapping[str, str]
    """The programs that it needs, and the Debian package of each."""

    @property
    def command(self) -> str:
        """What a user types."""
        return f"{Path(sys.executable).name} -m {self.module}"


class Standing:
    """The one cluster of its kind of this user that stays, as it lies in a folder.

    A FIFO in there holds it: whoever can open it for writing knows that the cluster lives, and a line
    written to it ends the cluster.
    """

    def __init__(self, kind: Kind) -> None:
        place = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
        self.kind, self._name = kind, f"castoff-{kind.title.lower()}-"
        self.folder = place / f"{self._name}{os.geteuid()}"
        self._fifo, self._doors = self.folder / "hold", self.folder / "hosts.json"

    def up(self) -> Cluster:
        """Start it.

        Raises:
            Refused: it stands already, or cannot be started here.
        """
        if why := why_no_hosts():
            raise Refused(why)
        packages = self.kind.packages.items()
        if missing := [package for program, package in packages if shutil.which(program) is None]:
            raise Refused(f"this needs Debian packages: apt-get install {' '.join(missing)}")
        held_by = self._claim()
        try:
            cluster = self.kind.start(self.folder, held_by)
            self._doors.write_text(json.dumps(cluster.hosts.doors))
        except BaseException as error:
            shutil.rmtree(self.folder)
            if isinstance(error, OSError | RuntimeError):
                raise Refused(f"it does not start: {error}") from error
            raise
        finally:
            os.close(held_by)
        return cluster

    def _claim(self) -> int:
        """Make the folder, unless a cluster stands in it; its FIFO, open."""
        made = Path(tempfile.mkdtemp(prefix=self._name, dir=self.folder.parent))
        os.mkfifo(made / "hold", 0o600)
        held_by = os.open(made / "hold", os.O_RDWR | os.O_CLOEXEC)
        try:
            if self._stands():
                raise Refused(f"it is up already; to begin anew: {self.kind.command} down")
            shutil.rmtree(self.folder, ignore_errors=True)  # one that did not end in order
            made.rename(self.folder)
        except BaseException as error:
            os.close(held_by)
            shutil.rmtree(made)
            if isinstance(error, OSError) and error.errno == errno.ENOTEMPTY:
                raise Refused("somebody else is just starting it") from error
            raise
        return held_by

    def enter(self, host: str) -> list[str]:
        """The words in front of a command that have it run on a host.

        Raises:
            Refused: it is not up, or has no such host.
        """
        if host not in (HEAD, *NODES):
            raise Refused(f"{host} is none of its hosts, which are {HEAD}, {', '.join(NODES)}")
        if not self._stands() or not self._doors.exists():
            raise Refused(f"it is not up; to start it: {self.kind.command} up")
        return Doors(*json.loads(self._doors.read_text())).enter(host)

    def down(self) -> None:
        """End it and wait for its end.

        Raises:
            Refused: it is not up.
        """
        if not self._stands():
            shutil.rmtree(self.folder, ignore_errors=True)
            raise Refused("it is not up")
        with self._fifo.open("w") as fifo:
            fifo.write("\n")
        patience.until(lambda: not self._stands(), f"it does not end; its logs are in {self.folder / 'logs'}")
        shutil.rmtree(self.folder)

    def _stands(self) -> bool:
        """Whether it lives.

        Raises:
            Refused: what lies in its place is not this user's, and nobody should believe it.
        """
        try:
            found = self.folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
                raise Refused(
                    f"{self.folder} is not a folder of yours that is closed to others; remove it first"
                )
            os.close(os.open(self._fifo, os.O_WRONLY | os.O_NONBLOCK))
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno == errno.ENXIO:  # nobody reads
                return False
            raise
        return True


def main(kind: Kind, words: Sequence[str]) -> int:
    """Do what the words say; what went wrong goes to stderr."""
    try:
        return _do(Standing(kind), words)
    except Refused as refused:
        print(f"{kind.module}: {refused}", file=sys.stderr)
        return 1


def _do(standing: Standing, words: Sequence[str]) -> int:
    kind = standing.kind
    match words:
        case ["up"]:
            cluster = standing.up()
            nodes = ", ".join(NODES)
            print(f"{kind.title} runs on {HEAD} and the nodes {nodes}; its logs are in {cluster.logs}")
            print(f"a shell there:  {kind.command} shell {HEAD}")
            print(f"to end it:      {kind.command} down")
        case ["down"]:
            standing.down()
        case ["shell", host, *command]:
            command = command or [os.environ.get("SHELL", "/bin/bash")]
            entered = standing.enter(host)
            os.environ["PATH"] = f"{standing.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
            os.execvp(entered[0], [*entered, *command])
        case _:
            print((__doc__ or "").replace("MODULE", kind.module), end="", file=sys.stderr)
            return 2
    return 0
