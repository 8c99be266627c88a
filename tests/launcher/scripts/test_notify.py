"""Messages from the end of a script, under every launcher; tests/launcher/notify has the rest."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from castoff.launcher.notify import webhooks
from tests.cases import others_long
from tests.webhook import SECRET, Server

from .conftest import Benches


@pytest.fixture
def server(fresh_home: object) -> Iterator[Server]:
    server = Server()
    webhooks.add("phone", server.url, None, os.environ)
    yield server
    server.close()


@pytest.mark.parametrize("kind", others_long(["local", "hydra", "openmpi", "pals", "srun"], ("pals", "srun")))
def test_a_failure(kind: str, bench: Benches, server: Server) -> None:
    here = bench(kind)
    ended = here.run(ranks_per_node=2, env={"PROBE": "fail 1 3"}, notify={"to": "phone"})
    assert ended.code == 3, ended.output
    (got,) = server.got
    assert got["state"] == "failed" and got["run"] == ended.run_dir.name
    assert "rank 1 on " in got["reason"] and " failed first: exit code 3" in got["reason"]
    assert SECRET not in ended.output


@pytest.mark.parametrize("kind", ["pals", "srun"])
def test_a_job_that_is_asked_to_end_says_nothing(kind: str, bench: Benches, server: Server) -> None:
    """Its scheduler may start it again: `castoff watch` asks that."""
    waits = [': >"$PROBE_FOLDER/ready-0"', "while :; do sleep 0.1; done"]
    started = bench(kind).start(setup=waits, notify={"to": "phone"})
    started.wait_for("ready", 1)
    started.process.terminate()
    ended = started.end()
    assert ended.ending == ("cancelled", 143), ended.output
    assert server.got == []


@pytest.mark.parametrize("kind", ["pals"])
def test_a_batch_script(kind: str, bench: Benches, server: Server) -> None:
    ended = bench(kind).run(script="#!/bin/sh\nexit 4\n", command=[], notify={"to": "phone"})
    assert ended.code == 4, ended.output
    (got,) = server.got
    assert got["reason"].startswith("the script on ") and got["reason"].endswith(" failed: exit code 4")
