"""To whom a job's messages go: names of webhooks, whose URLs are secrets, and mail addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from castoff.launcher.config.job_fields import Notify, Restart
from castoff.launcher.errors import Problem, shown
from castoff.launcher.typed.document import FieldPath
from castoff.launcher.typed.suggestion import setting

_RECEIVER = re.compile(r"[A-Za-z0-9_-]{1,40}|[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*")
"""The name of a webhook, or a mail address. Either can be part of a file's name, and needs no quotes."""

_IS_URL = "is a URL, which others could use: `castoff notify add phone` keeps it; then write `to: phone`"


def hidden_url(assignment: str) -> Problem | None:
    """The problem of a `--set` with a webhook's URL, which errors about it would show."""
    field, _, value = assignment.partition("=")
    is_url = field.strip().startswith("notify") and "/" in value
    return Problem(f"--set {field.strip()}=…", "notify.to", _IS_URL) if is_url else None


def problems(notify: Notify, restart: Restart) -> Iterator[tuple[FieldPath, str]]:
    """Yield the problems of a job's `notify`. No message contains what may be a URL."""
    if not notify.to:
        yield ("notify", "to"), "is empty: name webhooks (`castoff notify add NAME`), or drop notify"
    if not notify.on:
        yield ("notify", "on"), "is empty: name events (end, fail, hang) or drop notify"
    for number, name in enumerate(notify.receivers):
        path: FieldPath = ("notify", "to") if isinstance(notify.to, str) else ("notify", "to", number)
        if "/" in name or ":" in name:  # without the value: it is a secret
            yield path, _IS_URL
        elif not _RECEIVER.fullmatch(name):
            takes = "takes a name (letters, digits, - and _) or a mail address"
            yield path, f"is {shown(name)}, but {takes}"
    if "hang" in notify.on and not restart.hang:
        missing = f"names hang, but nothing looks for hangs: add {setting('restart.hang', '15m')}"
        yield ("notify", "on"), f"{missing}, or drop hang"
