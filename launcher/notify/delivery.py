"""Sends a message: to a webhook over HTTP, or as mail by this host's sendmail. No error contains the URL."""

from __future__ import annotations

import base64
import email.message
import email.utils
import http.client
import shutil
import socket
import ssl
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from castoff.launcher.errors import CastoffError
from castoff.launcher.notify import webhooks
from castoff.launcher.notify.message import Message, filled

_PATIENCE = 15.0
"""Seconds that a server may take to connect, and to answer."""

_MAIL_PATIENCE = 60.0

_TOO_MANY, _TIMEOUT = 429, 408

_LONGEST_PAUSE = 3600.0

_SENDMAIL = ("/usr/sbin/sendmail", "/usr/lib/sendmail")


class Outcome(NamedTuple):
    """What became of a message."""

    error: str | None = None
    """None: it was sent."""
    may_pass: bool = False
    """Whether the same message may be sent later."""
    pause: float = 0.0
    """Seconds that the server asks to wait."""


def deliver(message: Message, receiver: str, environ: Mapping[str, str]) -> Outcome:
    """Send a message to the name of a webhook, or to a mail address."""
    if "@" in receiver:
        return _mail(message, receiver)
    return deliver_values(message.values, receiver, environ)


def deliver_values(values: Mapping[str, str], name: str, environ: Mapping[str, str]) -> Outcome:
    """Send the values of a message to a webhook."""
    try:
        webhook = webhooks.read(name, environ)
    except CastoffError as error:
        return Outcome(str(error))
    return _post(webhook, filled(webhook.body, values))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A webhook's server redirects nobody; what would be sent on is the secret."""

    def redirect_request(self, *_: object) -> None:
        return None


def _post(webhook: webhooks.Webhook, body: str) -> Outcome:
    url, headers = _without_password(webhook.url)
    headers |= {"Content-Type": "application/json", "User-Agent": "castoff"}
    request = urllib.request.Request(url, body.encode(), headers, method="POST")
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=_PATIENCE):
            return Outcome()
    except urllib.error.HTTPError as error:
        with error:
            may_pass = error.code >= 500 or error.code in (_TOO_MANY, _TIMEOUT)
            return Outcome(f"{webhook.host} answered HTTP {error.code}", may_pass, _asked_pause(error))
    except urllib.error.URLError as error:
        return Outcome(_words(webhook.host, error.reason), may_pass=True)
    except (OSError, http.client.HTTPException) as error:
        return Outcome(_words(webhook.host, error), may_pass=True)
    except ValueError as error:  # of a URL with a port such as :x
        return Outcome(f"the URL cannot be used ({type(error).__name__}); `castoff notify add` replaces it")


def _without_password(url: str) -> tuple[str, dict[str, str]]:
    """A URL without USER:PASSWORD@, and the header for it, which urllib would not make."""
    parts = urllib.parse.urlsplit(url)
    who, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, {}
    token = base64.b64encode(urllib.parse.unquote(who).encode()).decode()
    return parts._replace(netloc=host).geturl(), {"Authorization": f"Basic {token}"}


def _asked_pause(error: urllib.error.HTTPError) -> float:
    """The seconds of Retry-After; 0 if there is none, or if it is a date."""
    try:
        return min(max(float(error.headers.get("Retry-After", "0")), 0.0), _LONGEST_PAUSE)
    except ValueError:
        return 0.0


def _words(host: str, reason: object) -> str:
    """An error in words without the URL, which some of Python's messages contain."""
    if isinstance(reason, TimeoutError):
        return f"{host} did not answer within {_PATIENCE:.0f} s"
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"{host} has a certificate that is not trusted here: {reason.verify_message}"
    if isinstance(reason, socket.gaierror):
        return f"the name of {host}, or of the proxy, is not found here"
    if isinstance(reason, OSError) and reason.strerror:
        return f"{host} cannot be reached: {reason.strerror}"
    return f"{host} cannot be reached: {type(reason).__name__}"


def _mail(message: Message, to: str) -> Outcome:
    program = shutil.which("sendmail") or next((one for one in _SENDMAIL if Path(one).exists()), None)
    if program is None:
        return Outcome(f"{socket.gethostname()} has no sendmail, so it can send no mail")
    mail = email.message.EmailMessage()
    mail["To"], mail["Subject"] = to, " ".join(message.title.split())
    mail["Date"] = email.utils.localtime()
    mail.set_content(message.text + "\n")
    try:
        done = subprocess.run(
            [program, "-i", "--", to],
            input=mail.as_bytes(),
            capture_output=True,
            timeout=_MAIL_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Outcome(f"{program}: {type(error).__name__}", may_pass=True)
    if done.returncode:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        return Outcome(f"{program} failed with code {done.returncode}: {(said or [''])[-1]}", may_pass=True)
    return Outcome()
