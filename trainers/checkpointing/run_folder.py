"""A run's own folder: what it is called, who may train into it, and what becomes of an earlier one.

    <training.path>/<name>/
      config.yaml     what the newest start trained with; config-1.yaml … what earlier ones did
      run.json        which castoff run made it
      .lock           held by rank 0 as long as it lives

Outside a castoff run the name is the configuration's, so the same command again resumes where it was.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from launcher.locks import NoLocks, try_lock
from trainers.configuration.config import Config
from trainers.configuration.fields import ConfigError
from trainers.configuration.paths import expanded
from trainers.configuration.yaml_text import to_yaml
from trainers.distributed.process_group import RankContext

PREVIOUS_ATTEMPT = 60.0
"""Seconds that an attempt of a castoff run waits for the last process of the one before."""

_LOOK_EVERY = 0.1
_OURS = {".lock", "run.json", ".run.json"}
"""What is there before anything has been trained."""

logger = logging.getLogger(__name__)


class RunFolder:
    """The folder of a run: rank 0 makes and locks it, all ranks know its path.

    Every rank must make one. `training.fresh` sets an earlier folder aside first, by one rename, unless
    it was made by an earlier attempt of the same castoff run; nothing is ever deleted.

    Raises:
        ConfigError: its name is none for a folder, or another process trains into it; on all ranks.
        OSError: it cannot be made or written to; on all ranks.
    """

    def __init__(self, config: Config, context: RankContext, environ: Mapping[str, str] | None = None):
        environ = os.environ if environ is None else environ
        self._context = context
        self.path: Path = context.on_main(lambda: _made(config, environ))

    def write_config(self, config: Config) -> None:
        """Write to config.yaml what is trained with now; rank 0 writes, others do nothing.

        One with other contents is kept, as config-1.yaml, config-2.yaml and so on.

        Raises:
            OSError: it cannot be written.
        """
        if not self._context.is_main:
            return
        # `fresh` is about one start, and no property of what is trained.
        lasting = msgspec.structs.replace(config.training, fresh=False)
        text = to_yaml(msgspec.structs.replace(config, training=lasting))
        path = self.path / "config.yaml"
        if path.exists():
            if path.read_text(encoding="utf-8") == text:
                return
            numbers = (re.fullmatch(r"config-(\d+)\.yaml", each.name) for each in self.path.iterdir())
            last = max((int(number[1]) for number in numbers if number), default=0)
            path.rename(self.path / f"config-{last + 1}.yaml")
        _replace(path, text)

    def record_end(self, step: int, *, stopped: bool = False) -> None:
        """Rank 0 says that there is nothing left to train; `stopped`: early stopping ended it."""
        if not self._context.is_main:
            return
        why = "early stopping has ended it" if stopped else "it has come to its end"
        more = "" if stopped else "; to train on, set a larger training.num_epochs or num_steps"
        logger.info(
            "Nothing is left to train in %s: %s, at step %d; to train anew, set training.fresh: "
            "true (castoff train --fresh)%s",
            *(self.path, why, step, more),
        )


def _made(config: Config, environ: Mapping[str, str]) -> Path:
    """The folder, ready to be trained into by this process alone."""
    castoff_run = _castoff_run(environ)
    folder = expanded(config.training.path, "training.path") / run_name(config, environ)
    patience = 0.0 if castoff_run is None else PREVIOUS_ATTEMPT
    _lock(folder, patience)
    mark = folder / "run.json"
    if config.training.fresh and not _made_by(mark, castoff_run) and _has_more(folder):
        aside = _next(folder)
        folder.rename(aside)
        logger.info("Beginning anew: the earlier %s is now %s", folder, aside)
        _lock(folder, patience)
    if not mark.exists():
        _replace(mark, json.dumps({"castoff_run": castoff_run}) + "\n")
    return folder


def run_name(config: Config, environ: Mapping[str, str]) -> str:
    """The name of a run's folder: the same in every attempt of a castoff run.

    Each member of an array has one of its own, and each training of a sweep.

    Raises:
        ConfigError: it is none for a folder.
    """
    given = config.training.run
    field, name = ("name", config.name) if given is None else ("training.run", given)
    if not name or name in (".", "..") or "/" in name or not name.isprintable():
        raise ConfigError(
            [
                f"{field}: is {name!r}, but names the run's folder: one name, without slashes and control "
                "characters (training.path says where it lies)"
            ]
        )
    castoff_run = _castoff_run(environ)
    if given is None and castoff_run is not None:
        name += f"_{castoff_run}"
    if castoff_run is not None and int(environ.get("CASTOFF_ARRAY_COUNT") or 1) > 1:
        name += f"-{environ.get('CASTOFF_ARRAY_INDEX') or 0}"
    elif config.member is not None:
        name += f"_{config.member.number}"
    return name


def _castoff_run(environ: Mapping[str, str]) -> str | None:
    """The castoff run that this process belongs to, by its run directory's name, which no other has."""
    return Path(environ["CASTOFF_RUN_DIR"]).name if environ.get("CASTOFF_RUN_DIR") else None


def _made_by(mark: Path, castoff_run: str | None) -> bool:
    """Whether an earlier attempt of this run has made the folder: then `fresh` was its matter."""
    if castoff_run is None:
        return False
    try:
        given = json.loads(mark.read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return isinstance(given, dict) and given.get("castoff_run") == castoff_run


def _has_more(folder: Path) -> bool:
    """Whether there is anything to set aside."""
    return any(each.name not in _OURS for each in folder.iterdir())


def _next(folder: Path) -> Path:
    """NAME.1, or one more than the highest that there is."""
    numbers = (
        re.fullmatch(re.escape(folder.name) + r"\.(\d+)", each.name) for each in folder.parent.iterdir()
    )
    last = max((int(number[1]) for number in numbers if number), default=0)
    return folder.with_name(f"{folder.name}.{last + 1}")


def _replace(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


# --- The lock -----------------------------------------------------------------------------------------

_held: dict[tuple[int, int, int], int] = {}
"""Descriptors by (process, device, inode). Closing any other descriptor of the same file would let go of
the lock, so a process that makes two trainers for a folder opens it once. A fork inherits neither the
lock, as it would flock's, nor a claim to it: loader workers may outlive rank 0."""


def _lock(folder: Path, patience: float) -> None:
    """Hold a folder's lock until this process ends; wait up to `patience` seconds for another's end.

    Raises:
        ConfigError: another process holds it.
    """
    give_up = time.monotonic() + patience
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        holder = _tried(folder / ".lock")
        if holder is None:
            return
        if time.monotonic() >= give_up:
            raise ConfigError(
                [
                    f"training.run: {holder} trains into {folder}; wait until that has ended, or give this "
                    "training a folder of its own: --set training.run=NAME"
                ]
            )
        time.sleep(_LOOK_EVERY)


def _tried(path: Path) -> str | None:
    """Who else holds a lock; None: this process does now."""
    if (there := _stat(path)) and _key(there) in _held:
        return None
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not try_lock(descriptor, inherited=False):
            record = _words(os.pread(descriptor, 1000, 0))
            os.close(descriptor)
            return record
    except OSError as error:
        os.close(descriptor)
        if not isinstance(error, NoLocks):
            raise
        logger.info("%s: no locks there (%s), so nothing keeps two runs apart", path, error.strerror)
        return None
    mine = os.fstat(descriptor)
    if (there := _stat(path)) is None or not os.path.samestat(mine, there):
        os.close(descriptor)
        return "another process"  # which has just set the folder aside
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
    _held[_key(mine)] = descriptor
    return None


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _key(file: os.stat_result) -> tuple[int, int, int]:
    return os.getpid(), file.st_dev, file.st_ino


def _words(record: bytes) -> str:
    try:
        given = json.loads(record)
        return f"process {given['pid']} on {given['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
