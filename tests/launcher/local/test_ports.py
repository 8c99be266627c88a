from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.errors import CastoffError
from launcher.local import ports
from launcher.local.ports import LOWEST_PORT, PORTS, first_port, reserve_port

HOLD = """
import sys
from launcher.local.ports import reserve_port
with reserve_port("the same job") as held:
    print(held.port, flush=True)
    sys.stdin.read()
"""


def test_the_port_comes_from_the_job_id_and_stays_unbound() -> None:
    with reserve_port("4711") as first:
        assert LOWEST_PORT <= first.port < LOWEST_PORT + PORTS
        with socket.create_server(("", first.port)):
            pass
    assert len({first_port(str(job)) for job in range(100)}) > 90


def test_a_port_that_is_bound_is_passed_over() -> None:
    with reserve_port("passed over") as free:
        taken = free.port
    with socket.create_server(("127.0.0.1", taken)), reserve_port("passed over") as other:
        assert other.port != taken


def test_a_port_bound_for_ipv6_alone_is_passed_over() -> None:
    with reserve_port("ipv6") as free:
        taken = free.port
    try:
        server = socket.create_server(("::1", taken), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 here")
    with server, reserve_port("ipv6") as other:
        assert other.port != taken


def test_starts_at_the_same_moment_never_share_a_port() -> None:
    holders = [
        subprocess.Popen(
            [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(16)
    ]
    try:
        chosen = [holder.stdout.readline() for holder in holders if holder.stdout]
    finally:
        for holder in holders:
            holder.communicate()
    assert len(set(chosen)) == len(holders)


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets")
def test_another_temporary_folder_does_not_hide_a_reservation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with reserve_port("elsewhere") as first:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        out = subprocess.run(
            [sys.executable, "-c", HOLD.replace("the same job", "elsewhere")],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        ).stdout
    assert int(out) != first.port


def test_a_closed_reservation_can_be_had_again() -> None:
    with reserve_port("again") as first:
        pass
    with reserve_port("again") as second:
        assert first.port == second.port


def test_when_all_are_taken_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_is_free", lambda port: False)
    with pytest.raises(CastoffError, match="20000-29999 on this host is taken"):
        reserve_port("none")


class TestFiles:
    """Reservations where there are no abstract sockets."""

    def test_a_held_file_cannot_be_held_twice(self, tmp_path: Path) -> None:
        release = ports._hold_file(20001, tmp_path)
        assert release is not None
        assert ports._hold_file(20001, tmp_path) is None
        other = ports._hold_file(20002, tmp_path)
        assert other is not None
        release()
        again = ports._hold_file(20001, tmp_path)
        assert again is not None
        again()
        other()
        folder = tmp_path / f"castoff-{os.getuid()}"
        assert folder.stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda folder: folder.symlink_to(folder.parent),
            lambda folder: folder.write_text(""),
            lambda folder: (folder.mkdir(), folder.chmod(0o777)),
        ],
        ids=["link", "file", "open to all"],
    )
    def test_an_unsafe_folder_is_refused(self, tmp_path: Path, spoil: Callable[[Path], object]) -> None:
        spoil(tmp_path / f"castoff-{os.getuid()}")
        with pytest.raises(CastoffError):
            ports._hold_file(20001, tmp_path)

    @pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
    def test_a_folder_of_somebody_else_is_refused(self, tmp_path: Path) -> None:
        folder = tmp_path / f"castoff-{os.getuid()}"
        folder.mkdir(mode=0o700)
        os.chown(folder, 4242, 4242)
        with pytest.raises(CastoffError, match="not a folder of yours"):
            ports._hold_file(20001, tmp_path)

    def test_a_link_in_place_of_the_file_is_refused(self, tmp_path: Path) -> None:
        folder = tmp_path / f"castoff-{os.getuid()}"
        folder.mkdir(mode=0o700)
        (folder / "port-20001").symlink_to(tmp_path / "victim")
        with pytest.raises(CastoffError, match="cannot reserve port 20001"):
            ports._hold_file(20001, tmp_path)
        assert not (tmp_path / "victim").exists()
