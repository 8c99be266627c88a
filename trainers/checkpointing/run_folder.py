"""A run's own folder: what it is called, who may train into it, and what becomes of an earlier one.

    <training.path>/<name>/
      config.yaml     what the newest start trained with; config-1.yaml … what earlier ones did
      run.json        which castoff run made it
      .lock           held by rank 0 as long as it lives (run_lock.py)

Outside a castoff run the name is the configuration's, so the same command again resumes where it was.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from castoff.trainers.checkpointing.run_lock import RunLock
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.paths import expanded
from castoff.trainers.configuration.yaml_text import to_yaml
from castoff.trainers.distributed.attempt import Attempt
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.files.durable import replace_file

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
        self.attempt = Attempt(environ)
        """The attempt of the castoff run that trains into it, if one does; rank 0 reports to it."""
        self._lock: RunLock | None = None
        self.path: Path = context.on_main(lambda: self._made(config, environ))

    def check(self) -> None:
        """See that this process, which is rank 0, may still write here; other ranks must not ask.

        Raises:
            AttemptOver: its attempt is over, or another process has taken its place.
        """
        assert self._lock is not None
        self.attempt.check()
        self._lock.check()

    def _made(self, config: Config, environ: Mapping[str, str]) -> Path:
        """The folder, ready to be trained into by this process alone."""
        castoff_run = self.attempt.run
        folder = expanded(config.training.path, "training.path") / run_name(config, environ)
        self._lock = RunLock(folder, self.attempt)
        mark = folder / "run.json"
        if config.training.fresh and not _made_by(mark, castoff_run) and _has_more(folder):
            aside = _next(folder)
            folder.rename(aside)
            logger.info("Beginning anew: the earlier %s is now %s", folder, aside)
            self._lock = RunLock(folder, self.attempt)
        if not mark.exists():
            replace_file(mark, f"{json.dumps({'castoff_run': castoff_run})}\n".encode())
        return folder

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
            if path.read_bytes() == text.encode():  # somebody may have written anything there
                return
            numbers = (re.fullmatch(r"config-(\d+)\.yaml", each.name) for each in self.path.iterdir())
            last = max((int(number[1]) for number in numbers if number), default=0)
            path.rename(self.path / f"config-{last + 1}.yaml")
        replace_file(path, text.encode())

    def record_end(self, step: int, *, stopped: bool = False) -> None:
        """Rank 0 says that there is nothing left to train; `stopped`: early stopping ended it."""
        if not self._context.is_main:
            return
        why = "early stopping has ended it" if stopped else "it has come to its end"
        more = "" if stopped else "; to train on, set a larger training.num_epochs or num_steps"
        logger.info(
            "Nothing is left to train in %s: %s, at step %d; to train anew, set training.fresh: "
            "true (castoff train --fresh)%s",
            self.path,
            why,
            step,
            more,
        )


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
    castoff_run = Attempt(environ).run
    if given is None and castoff_run is not None:
        name += f"_{castoff_run}"
    if castoff_run is not None and int(environ.get("CASTOFF_ARRAY_COUNT") or 1) > 1:
        name += f"-{environ.get('CASTOFF_ARRAY_INDEX') or 0}"
    elif config.member is not None:
        name += f"_{config.member.number}"
    return name


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
    return any(path.name != "run.json" and not path.name.startswith(".") for path in folder.iterdir())


def _next(folder: Path) -> Path:
    """NAME.1, or one more than the highest that there is."""
    numbers = (
        re.fullmatch(re.escape(folder.name) + r"\.(\d+)", each.name) for each in folder.parent.iterdir()
    )
    last = max((int(number[1]) for number in numbers if number), default=0)
    return folder.with_name(f"{folder.name}.{last + 1}")
