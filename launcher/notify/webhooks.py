"""The user's webhooks: a file for each, which only the user can read, with its URL and the body of a message.

A webhook's URL is a secret: whoever has it can write into the channel. It is in no job file, script, record
or command line. The file's first line is the URL, the second a body in JSON, in which `{title}` and the like
stand for what `castoff.launcher.notify.message` makes of a run. Job scripts read the same file, so they need
not know one service from another.
"""

from __future__ import annotations

import json
import os
import re
import stat
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.process import files
from castoff.launcher.runs.notices import NAME, webhook_file, webhooks_folder
from castoff.launcher.text.quoting import visible_word
from castoff.launcher.typed.suggestion import did_you_mean

BODIES: dict[str, Any] = {
    "slack": {"text": "*{title_html}*\n{text_html}"},
    "teams": {
        "type": "message",
        "attachments": [
            {
                "contentType": "application/vnd.microsoft.card.adaptive",
                "content": {
                    "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                    "type": "AdaptiveCard",
                    "version": "1.4",
                    "body": [
                        {"type": "TextBlock", "text": "{title}", "weight": "Bolder", "wrap": True},
                        {"type": "TextBlock", "text": "{text_paragraphs}", "wrap": True},
                    ],
                },
            }
        ],
    },
    "discord": {"content": "**{title}**\n{text}", "allowed_mentions": {"parse": []}},
    "ntfy": {
        "topic": "",
        "title": "{title}",
        "message": "{text}",
        "priority": "{priority}",
        "tags": ["{tag}"],
    },
    "json": {
        name: f"{{{name}}}"
        for name in ("title", "text", "name", "run", "site", "event", "state", "reason", "command", "seconds")
    },
}
"""The body of a message by the kind of service; `json` is for one's own."""

_NUMBERS = ("priority", "seconds")
"""Values that are numbers in a body."""

_HOSTS = (
    ("slack", r"hooks\.slack(-gov)?\.com"),
    ("discord", r"(.+\.)?discord(app)?\.com"),
    ("teams", r".+\.(logic\.azure\.com|powerplatform\.com|webhook\.office\.com)"),
    ("ntfy", r"ntfy\..+"),
)
"""How the host of a URL shows its kind."""

_URL = re.compile(r"https?://[^\s\"\\<>`^{}|\x00-\x20\x7f-\U0010ffff]+")
"""A URL that a script can pass to curl: everything else in a URL has to be written as %20 and the like."""


class Webhook(NamedTuple):
    """A webhook, as its file has it."""

    name: str
    url: str
    body: str

    @property
    def host(self) -> str:
        """The host of the URL, which is no secret."""
        return urllib.parse.urlsplit(self.url).hostname or "?"


def add(name: str, url: str, kind: str | None, environ: Mapping[str, str]) -> Webhook:
    """Store a webhook, in place of any other with its name. `kind`: None guesses it from the host.

    Raises:
        CastoffError: the name or the URL cannot be used, or the file cannot be written.
    """
    if not NAME.fullmatch(name):
        raise CastoffError(f"{printable(name)!r}: a name has letters, digits, - and _, and 40 at most")
    url = url.strip()
    if not url:
        fix = f"`castoff notify add {name} <url.txt`"
        raise CastoffError(f"no URL was given; castoff reads it from standard input, as in {fix}")
    if not _URL.fullmatch(url) or not (host := urllib.parse.urlsplit(url).hostname):
        raise CastoffError("that is not a URL: it begins with https:// and has no blanks; nothing was added")
    kind = kind or next((one for one, hosts in _HOSTS if re.fullmatch(hosts, host)), "json")
    body = BODIES[kind]
    if kind == "ntfy":  # its JSON goes to the server's root
        parts = urllib.parse.urlsplit(url)
        above, _, topic = parts.path.rstrip("/").rpartition("/")
        if not topic:
            raise CastoffError(f"a URL of ntfy ends in a topic, as https://{host}/TOPIC; nothing was added")
        url, body = parts._replace(path=f"{above}/").geturl(), {**body, "topic": topic}
    text = json.dumps(body, ensure_ascii=False)
    for number in _NUMBERS:
        text = text.replace(f'"{{{number}}}"', f"{{{number}}}")
    path = webhook_file(name, environ)
    try:
        files.make_folders(path.parent)
        files.replace(path, f"{url}\n{text}\n", 0o600)
    except OSError as error:
        raise CastoffError(f"{path}: cannot be written: {error.strerror}") from error
    return Webhook(name, url, text)


def read(name: str, environ: Mapping[str, str]) -> Webhook:
    """Read a webhook.

    Raises:
        CastoffError: there is none of that name, or its file is damaged or not the user's alone.
    """
    path = webhook_file(name, environ)
    again = f"castoff notify add {name}"
    try:
        with path.open(encoding="utf-8") as file:
            about = os.fstat(file.fileno())
            lines = file.read().splitlines()
    except FileNotFoundError:
        there = names(environ)
        has = f"there are: {', '.join(there)}" if there else "there is none yet"
        guess = did_you_mean(name, there) or f"; {has}"
        raise CastoffError(f"no webhook {name!r}{guess}; `{again}` adds it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CastoffError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from error
    if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
        raise CastoffError(f"others may read or change {path}; `{again}` replaces it")
    if len(lines) < 2 or not _URL.fullmatch(lines[0]):
        raise CastoffError(f"{path}: holds no URL and body; `{again}` writes both")
    return Webhook(name, lines[0], lines[1])


def names(environ: Mapping[str, str]) -> list[str]:
    """The names of all webhooks.

    Raises:
        CastoffError: their folder cannot be read.
    """
    folder = webhooks_folder(environ)
    try:
        return sorted(path.name for path in folder.iterdir() if NAME.fullmatch(path.name))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CastoffError(f"{folder}: cannot be read: {error.strerror}") from error


def remove(name: str, environ: Mapping[str, str]) -> Path:
    """Remove a webhook, and return the path of its file.

    Raises:
        CastoffError: there is none of that name.
    """
    path = webhook_file(name, environ)
    if name not in names(environ):
        read(name, environ)  # says what there is
    try:
        path.unlink()
    except OSError as error:
        shown = visible_word(str(path))
        raise CastoffError(f"{shown}: cannot be removed: {error.strerror}") from error
    return path
