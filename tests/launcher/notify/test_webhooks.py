"""Webhooks: which service a URL is of, and that nobody else gets to see it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.notify import webhooks
from castoff.launcher.notify.message import example
from castoff.launcher.runs.notices import webhook_file

from ..conftest import Castoff
from .conftest import SECRET, Server


def body_of(url: str, kind: str | None = None) -> Any:
    """What a service gets."""
    return json.loads(example().fill(webhooks.add("phone", url, kind, os.environ).body))


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("https://hooks.slack.com/services/T0/B0/x", "text"),
        ("https://discord.com/api/webhooks/1/x", "content"),
        ("https://prod-1.westus.logic.azure.com:443/workflows/x?sig=y", "attachments"),
        ("https://a.b.environment.api.powerplatform.com/x?sig=y", "attachments"),
        ("https://example.org/x", "command"),
    ],
)
def test_the_host_shows_the_service(url: str, key: str) -> None:
    assert key in body_of(url)
    assert webhooks.read("phone", os.environ).url == url


@pytest.mark.parametrize("before", ["https://ntfy.sh", "https://ntfy.example.org/push"])
def test_ntfy_gets_its_topic_in_the_body(before: str) -> None:
    got = body_of(f"{before}/{SECRET}?auth=abc")
    assert (got["topic"], got["priority"], got["tags"]) == (SECRET, 3, ["white_check_mark"])
    assert webhooks.read("phone", os.environ).url == f"{before}/?auth=abc"
    with pytest.raises(CastoffError, match="ends in a topic"):
        webhooks.add("phone", "https://ntfy.sh", None, os.environ)


def test_a_kind_wins_over_the_host() -> None:
    assert [*body_of("https://chat.example.org/hooks/x", "slack")] == ["text"]


def test_no_url_at_all_is_said_to_come_from_standard_input() -> None:
    with pytest.raises(CastoffError, match=r"castoff notify add phone <url\.txt"):
        webhooks.add("phone", "\n", None, os.environ)


@pytest.mark.parametrize(
    "url", ["phone", "ftp://a/b", "https:///x", "https://a/b c", 'https://a/"b', "http://ä/x"]
)
def test_what_is_no_url_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(CastoffError, match="that is not a URL") as error:
        webhooks.add("phone", url, None, os.environ)
    assert not url or url not in str(error.value)
    assert webhooks.names(os.environ) == []


def test_names_are_parts_of_files() -> None:
    for name in ("", "a/b", "..", "a b", "x" * 41):
        with pytest.raises(CastoffError, match="a name has letters"):
            webhooks.add(name, "https://example.org/x", None, os.environ)


def test_one_that_cannot_be_removed(tmp_path: Path) -> None:
    folder = webhook_file("phone", {"XDG_CONFIG_HOME": f"{tmp_path}/a b"})
    folder.mkdir(parents=True)
    with pytest.raises(CastoffError) as error:
        webhooks.remove("phone", {"XDG_CONFIG_HOME": f"{tmp_path}/a b"})
    assert str(error.value).startswith(f"'{folder}': cannot be removed: ")


def test_only_the_user_can_read_it(server: Server) -> None:
    path = webhook_file("phone", os.environ)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    with pytest.raises(CastoffError, match="others may read or change"):
        webhooks.read("phone", os.environ)
    path.chmod(0o600)
    path.write_text(f"{server.url}\n")
    with pytest.raises(CastoffError, match="no URL and body") as error:
        webhooks.read("phone", os.environ)
    assert SECRET not in str(error.value)


def test_from_the_command_line(castoff: Castoff, server: Server) -> None:
    added = castoff("notify", "add", "team", input=f"{server.url}\n")
    assert added.returncode == 0, added.stderr
    said = [added, castoff("notify"), castoff("notify", "list", "--json"), castoff("notify", "test", "team")]
    assert all(answer.returncode == 0 for answer in said)
    assert said[1].stdout.split() == ["name", "host", "phone", "127.0.0.1", "team", "127.0.0.1"]
    assert [got["title"] for got in server.got] == ["castoff: a test message"]
    assert server.paths == [f"/{SECRET}"]
    server.answers = [(404, {})]
    said.append(castoff("notify", "test", "team"))
    assert "castoff: not sent: 127.0.0.1 answered HTTP 404" in said[-1].stderr and said[-1].returncode == 1
    said.append(castoff("notify", "test", "taem"))
    assert "did you mean team?" in said[-1].stderr
    said.append(castoff("notify", "remove", "team"))
    assert not webhook_file("team", os.environ).exists()
    said.append(castoff("notify", "remove", "team"))
    assert said[-1].returncode == 1
    assert not [answer for answer in said if SECRET in answer.stdout + answer.stderr]


def test_a_job_file_with_a_url_is_refused_without_showing_it(castoff: Castoff, tmp_path: Path) -> None:
    for to in ("https://ntfy.sh/" + SECRET, ["team", "hooks.slack.com/services/" + SECRET]):
        (tmp_path / "job.yaml").write_text(json.dumps({"command": ["x"], "notify": {"to": to}}))
        answer = castoff("render", "job.yaml", "--site", "slurm")
        assert answer.returncode == 2 and "`castoff notify add phone` keeps it" in answer.stderr
        assert SECRET not in answer.stdout + answer.stderr
    answer = castoff("render", "--site", "slurm", "--set", f"notify.to=[http://x/{SECRET}]", "--", "true")
    assert answer.returncode == 2 and "castoff: --set notify.to=…: is a URL" in answer.stderr
    assert SECRET not in answer.stdout + answer.stderr


def test_a_server_redirects_nobody(castoff: Castoff, server: Server) -> None:
    server.answers = [(307, {"Location": server.url})]
    assert "answered HTTP 307" in castoff("notify", "test", "phone").stderr
    assert len(server.got) == 1


def test_a_password_in_the_url(server: Server) -> None:
    webhooks.add("phone", server.url.replace("//", "//me:pass@"), None, os.environ)
    from castoff.launcher.notify.delivery import deliver

    assert deliver(example(), "phone", os.environ).error is None
    assert server.headers[0]["Authorization"] == "Basic bWU6cGFzcw=="
