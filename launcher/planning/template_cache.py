"""Compiled templates, kept between calls: compiling them takes longer than all else that render does."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket


class _Cache(jinja2.FileSystemBytecodeCache):
    """Jinja's own, which checks each entry against its template; a full disk is no reason to fail."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            super().dump_bytecode(bucket)


def template_cache(environ: Mapping[str, str]) -> jinja2.BytecodeCache | None:
    """The cache in the user's cache folder ($XDG_CACHE_HOME, else ~/.cache).

    None where that folder cannot be made, or where others could write to it: what is in it runs.
    """
    home = environ.get("HOME")
    base = environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home else "")
    folder = Path(base) / "castoff" / "templates"
    if not folder.is_absolute():
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        state = folder.stat()
    except OSError:
        return None
    if state.st_uid != os.geteuid() or state.st_mode & 0o022:
        return None
    return _Cache(str(folder), "%s.bin")
