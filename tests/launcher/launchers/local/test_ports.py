from __future__ import annotations

import socket

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.launchers.local import this_host as ports
from castoff.launcher.launchers.local.this_host import free_port
from castoff.launcher.ranks.rendezvous import PORTS, derived_port


def test_the_port_comes_from_the_job_id_and_stays_unbound() -> None:
    port = free_port("4711")
    assert port in PORTS
    with socket.create_server(("", port)):
        pass
    assert len({derived_port(str(job)) for job in range(100)}) > 90


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_port_that_is_bound_is_passed_over(family: socket.AddressFamily, address: str) -> None:
    taken = free_port(address)
    try:
        server = socket.create_server((address, taken), family=family)
    except OSError:
        pytest.skip(f"no {address} here")
    with server:
        assert taken != free_port(address) in PORTS


def test_behind_the_last_comes_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "derived_port", lambda job_id: PORTS[-1])
    monkeypatch.setattr(ports, "is_free", lambda port: port == PORTS[1])
    assert free_port("any") == PORTS[1]


def test_an_error_reports_that_all_ports_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: False)
    with pytest.raises(CastoffError, match="20000-29999 on this host is taken"):
        free_port("none")
