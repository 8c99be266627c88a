"""A webhook, and its server on this host."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from castoff.launcher.notify import webhooks
from tests.webhook import SECRET as SECRET
from tests.webhook import Server as Server


@pytest.fixture
def server() -> Iterator[Server]:
    """A server, and a webhook `phone` with its URL."""
    server = Server()
    webhooks.add("phone", server.url, None, os.environ)
    yield server
    server.close()
