"""Messages about the runs of another machine, by the laptop's webhooks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import msgspec
import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.notify import webhooks
from castoff.launcher.notify.relay import Done, Errand, Sender, State
from tests.clock import Clock
from tests.webhook import SECRET, Server

from .conftest import Laptop


@pytest.fixture
def server(fresh_home: object) -> Iterator[Server]:
    server = Server()
    webhooks.add("phone", server.url, None, os.environ)
    yield server
    server.close()


def test_the_laptop_sends_what_the_machine_finds(laptop: Laptop, server: Server) -> None:
    laptop.add("far")
    laptop.a_job()
    run = laptop.submitted("far", "submit", "--set", "notify.to=phone", "--", "sh", "-c", "exit 3")
    assert laptop("--on", "far", "wait", str(run["id"])).returncode == 3
    server.answers = [(400, {})]
    watched = laptop("--on", "far", "watch")
    assert watched.returncode == 0, watched.stderr
    assert watched.stdout == "phone: sh: failed: not sent: 127.0.0.1 answered HTTP 400\n"
    shown = laptop("--on", "far", "status", str(run["id"])).stdout
    assert "phone: not sent: 127.0.0.1 answered HTTP 400" in shown
    watched = laptop("--on", "far", "watch", str(run["id"]))
    assert (watched.returncode, watched.stdout) == (0, "phone: sh: failed\n"), watched.stderr
    assert [got["run"] for got in server.got] == [run["id"], run["id"]]
    assert "phone: sent " in laptop("--on", "far", "status", str(run["id"])).stdout
    again = laptop("--on", "far", "watch", str(run["id"]))
    assert (again.returncode, again.stdout, len(server.got)) == (0, "", 2)
    held = [path for path in laptop.far.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert held == []


def test_a_webhook_for_the_machine(laptop: Laptop, server: Server) -> None:
    """Its URL goes to the machine by standard input."""
    laptop.add("far")
    added = laptop("--on", "far", "notify", "add", "team", input=f"{server.url}\n")
    assert added.returncode == 0 and "added       team" in added.stdout, added.stderr
    path = laptop.machine.homes["sh"] / ".config/castoff/notify/team"
    assert path.read_text().startswith(f"{server.url}\n")
    assert webhooks.names(os.environ) == ["phone"]


def errand(server: Server, number: int) -> bytes:
    values = {"title": "t", "text": "x", "seconds": "1"}
    return msgspec.json.encode(Errand("/run", "end", "phone", number, "train: done", values))


def test_what_fails_is_sent_again_in_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said = Clock(monkeypatch), list[str]()
    sender = Sender(os.environ, said.append)
    server.answers = [(503, {"Retry-After": "60"})]
    over = b"\n" + msgspec.json.encode(Errand(left=False))
    assert sender.take(errand(server, 1) + over, "far") is False and sender.has_news
    state = msgspec.json.decode(sender.state, type=State)
    assert state.done == [Done("/run", "end", "phone", 1, "127.0.0.1 answered HTTP 503")]
    assert state.leave == [("/run", "end", "phone")]
    sender.take(over.strip(), "far")
    clock.sleep(61)
    assert sender.has_more and json.loads(sender.state) == {"done": [], "leave": []}
    sender.take(errand(server, 2) + over, "far")
    assert json.loads(sender.state)["done"][0]["error"] is None and len(server.got) == 2
    sender.take(over.strip(), "far")
    assert not sender.has_more and said[-1] == "phone: train: done"


@pytest.mark.parametrize("answer", [b"", b"no JSON", b"[]", b"{}"])
def test_another_answer_is_refused(answer: bytes, server: Server) -> None:
    with pytest.raises(CastoffError, match="far: castoff there"):
        Sender(os.environ, print).take(answer, "far")
