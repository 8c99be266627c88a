"""Source distributions from a Python package index, as files: nothing in them is built or run.

The index is queried by its standard protocol (PEP 503 and 691), because pip would first build what it
fetches.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import ssl
import subprocess
import sys
from hashlib import sha256
from html import unescape
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from castoff.trainers.configuration.fields import ConfigError

_PYPI = "https://pypi.org/simple"
_PIECE = 1 << 20
_PATIENCE = 60.0
"""Seconds to wait for data from the server."""

logger = logging.getLogger(__name__)


class Archive(NamedTuple):
    """A source distribution."""

    name: str
    version: str
    file: str
    sha256: str


def index_address() -> str:
    """The index that pip would use: from the environment or pip's configuration, else PyPI."""
    if index := os.environ.get("PIP_INDEX_URL"):
        return index
    pip = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        check=False,
    )
    return pip.stdout.strip() or _PYPI


def fetched(archive: Archive, folder: Path, index: str) -> Path:
    """Fetch an archive to a folder, unless it is there; an interrupted download is resumed.

    Raises:
        ConfigError: the index cannot be reached, does not have the archive, or has another file of that name.
    """
    path = folder / archive.file
    if path.exists() and _sum_of(path) == archive.sha256:
        return path
    address = _address(archive, index)
    logger.info("fetching %s", archive.file)
    part = path.with_name(f"{path.name}.part")
    _download(address, part, archive)
    if _sum_of(part) != archive.sha256:
        part.unlink()
        raise ConfigError(
            [
                f"the file from {_shown(address)} is not the published {archive.file} (its SHA-256 is "
                f"not {archive.sha256[:12]}…), and was removed; try again, or name another index with "
                "--index"
            ]
        )
    part.rename(path)
    return path


def _address(archive: Archive, index: str) -> str:
    """The address that the index gives for the archive."""
    page = f"{index.rstrip('/')}/{archive.name}/"
    accept = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
    try:
        with _opened(page, {"Accept": accept}) as answer:
            kind, content = answer.headers.get_content_type(), answer.read()
    except (OSError, HTTPException, ValueError) as error:
        raise _unreachable(page, error) from error
    links: list[str]
    if kind.endswith("json"):
        try:
            files = json.loads(content)["files"]
            links = [file["url"] for file in files if file["filename"] == archive.file]
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                [f"{_shown(page)} is not a page of a package index; name another one, as --index {_PYPI}"]
            ) from error
    else:
        addresses = re.findall(r"""<a\s[^>]*?href=["']([^"']*)["']""", content.decode(errors="replace"), re.I)
        links = [
            link
            for link in map(unescape, addresses)
            if unquote(urlsplit(link).path).rpartition("/")[2] == archive.file
        ]
    if not links:
        raise ConfigError(
            [f"{_shown(page)} has no {archive.file}; name an index that has it, as --index {_PYPI}"]
        )
    return urljoin(page, links[0])


def _download(address: str, part: Path, archive: Archive) -> None:
    """Download what `part` does not have yet."""
    size = part.stat().st_size if part.exists() else 0
    try:
        try:
            answer = _opened(address, {"Range": f"bytes={size}-"} if size else {})
        except HTTPError as error:
            if error.code != 416:
                raise
            error.close()
            return  # `part` is already complete
        with answer, part.open("ab" if answer.status == 206 else "wb") as file:
            while block := answer.read(_PIECE):
                file.write(block)
        expected = answer.headers.get("Content-Length")
        if expected is not None and part.stat().st_size < int(expected):
            raise HTTPException(f"it ended in the middle of {archive.file}")
    except (HTTPException, ValueError) as error:
        raise _unreachable(address, error) from error
    except OSError as error:
        if error.filename == str(part) or error.errno == 28:
            raise
        raise _unreachable(address, error) from error


def _opened(address: str, headers: dict[str, str]) -> Any:
    """Open an address; a user name and password in it are sent as basic authentication."""
    parts = urlsplit(address)
    if parts.username:
        words = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers = {**headers, "Authorization": f"Basic {base64.b64encode(words).decode()}"}
    authorities = os.environ.get("PIP_CERT") or None
    context = ssl.create_default_context(cafile=authorities) if parts.scheme == "https" else None
    return urlopen(Request(_shown(address), headers=headers), timeout=_PATIENCE, context=context)


def _shown(address: str) -> str:
    """An address without user name and password."""
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _unreachable(address: str, error: Exception) -> ConfigError:
    reason = getattr(error, "reason", None) or error
    return ConfigError(
        [
            f"{_shown(address)} cannot be fetched ({reason}); run this on a host with a network, such as "
            "a login node, name a reachable index with --index, or set https_proxy; files fetched so "
            "far are kept"
        ]
    )


def _sum_of(path: Path) -> str:
    summed = sha256()
    with path.open("rb") as file:
        while block := file.read(_PIECE):
            summed.update(block)
    return summed.hexdigest()
