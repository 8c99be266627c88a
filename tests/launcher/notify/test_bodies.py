"""What a service gets: the same from a job's script and from `castoff watch`, whatever a run is called."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from castoff.launcher.notify import webhooks
from castoff.launcher.notify.message import Message, example
from tests.hostile import ANY, QUOTES

from ..scripts.machine import part

SCRIPT = """
set -euo pipefail
CASTOFF_RUN_DIR=$1 castoff_notify_site="your site" castoff_notify_to=phone castoff_state='done' castoff_bad=
date() { echo 1000; }
castoff_notify_once() {
  while IFS= read -r castoff_body; do
    castoff_notify_fill "$castoff_body"
    printf '\\0'
  done <"$CASTOFF_RUN_DIR/bodies"
}
for ((at = 2; at <= $#; at += 4)); do
  castoff_name=${@:at:1} castoff_run=${@:at+1:1}
  set +e
  castoff_notify end "${@:at+2:1}" "${@:at+3:1}"
done
"""

WORDS = (
    ANY
    | QUOTES
    | st.sampled_from(["{title}", "{text} {run}", "a\\nb", "C:\\new", "<!channel> & co", "ä" * 300])
)


def texts(kinds: list[str]) -> list[str]:
    """The bodies of these kinds of services."""
    url = "https://example.org/x"
    return [webhooks.add("phone", url, kind, os.environ).body for kind in kinds]


def from_script(folder: Path, bodies: list[str], several: list[tuple[str, str, str, str]]) -> list[str]:
    """The messages that a script makes of names, ids, titles and reasons."""
    attempt = folder / "attempts" / "0.0"
    attempt.mkdir(parents=True, exist_ok=True)
    (attempt / "start.json").touch()
    os.utime(attempt / "start.json", (100, 100))
    (folder / "bodies").write_text("".join(f"{body}\n" for body in bodies))
    program = part("setup", "notify") + part("notify", "notify") + SCRIPT
    words = [word.encode("utf-8", "surrogateescape") for four in several for word in four]
    done = subprocess.run(["bash", "-c", program, "x", str(folder), *words], capture_output=True, check=True)
    return [text.decode() for text in done.stdout.split(b"\0")[:-1]]


def from_watch(bodies: list[str], several: list[tuple[str, str, str, str]]) -> list[str]:
    """The same from `castoff watch`."""
    base = example()
    made = []
    for name, run, title, reason in several:
        subject = base.subject._replace(name=name, id=run)
        message = Message("end", title, reason, subject, "done", False, 900)
        made += [message.fill(body) for body in bodies]
    return made


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(several=st.lists(st.tuples(WORDS, WORDS, WORDS, WORDS), min_size=3, max_size=6))
def test_both_say_the_same(several: list[tuple[str, str, str, str]], tmp_path: Path) -> None:
    bodies = texts(["slack", "teams", "json"])
    mine = from_script(tmp_path, bodies, several)
    assert mine == from_watch(bodies, several)
    for text in mine:
        json.loads(text)


def test_what_services_show() -> None:
    shown = dict(
        zip(webhooks.BODIES, texts([kind for kind in webhooks.BODIES if kind != "ntfy"]), strict=False)
    )
    assert [*shown][:2] == ["slack", "teams"]
    base = example()
    message = base._replace(title="a<b>", reason="it & more\nlast", seconds=3700)
    slack = json.loads(message.fill(shown["slack"]))["text"]
    assert slack == "*a&lt;b&gt;*\nit &amp; more last\nyour site, after 1h01m: castoff status example"
    card = json.loads(message.fill(shown["teams"]))["attachments"][0]["content"]["body"]
    assert [block["text"] for block in card] == [
        "a<b>",
        "it & more last\n\nyour site, after 1h01m: castoff status example",
    ]


@pytest.mark.parametrize("seconds", [-5, 0, 99, 100, 3599, 3600, 86399, 86400, 864000])
def test_times_in_brief(seconds: int) -> None:
    from castoff.launcher.text.words import brief

    program = part("notify", "notify") + f"castoff_notify_brief {seconds}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == brief(seconds)


def test_a_body_is_that_of_its_file(tmp_path: Path) -> None:
    """Whoever edits the second line of a webhook's file gets what he wrote."""
    own = '{"chat_id": 7, "text": "{title}: {reason} {unknown}"}'
    four = ("n", "r", "t", 'say "no"')
    assert from_script(tmp_path, [own], [four]) == ['{"chat_id": 7, "text": "t: say \\"no\\" {unknown}"}']
    assert msgspec.json.decode(from_watch([own], [four])[0])["chat_id"] == 7


def test_without_iconv_only_ascii_is_left() -> None:
    program = "command() { return 1; }\n" + part("setup", "notify") + part("notify", "notify")
    done = subprocess.run(
        ["bash", "-c", f'{program}castoff_notify_text "$1"', "x", 'Bär "a"'], capture_output=True, check=True
    )
    assert done.stdout.decode() == 'Br \\"a\\"'
