"""A run's folder: its name, its lock, and what happens to an earlier folder of this name.

    <training.path>/<name>/
      config.yaml     configuration of the newest start; config-1.yaml … those of earlier ones
      run.json        the castoff run that made it
      .lock           held by rank 0 as long as it lives (run_lock.py)

Outside a castoff run the name is the configuration's, so the same command resumes the training.
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
    """The folder of a run: rank 0 makes and locks it; all ranks have its path.

    Every rank must create a RunFolder. `training.fresh` first renames an earlier folder, unless an earlier
    attempt of the same castoff run made it; nothing is ever deleted.

    Raises:
        ConfigError: its name is not valid, or another process is training in it; raised on all ranks.
        OSError: it cannot be made or written to; raised on all ranks.
    """

    def __init__(self, config: Config, context: RankContext, environ: Mapping[str, str] | None = None):
        environ = os.environ if environ is None else environ
        self._context = context
        self.attempt = Attempt(environ)
        """The attempt of the castoff run that this process belongs to, if any; rank 0 reports to it."""
        self._lock: RunLock | None = None
        self.path: Path = context.on_main(lambda: self._made(config, environ))

    def check(self) -> None:
        """Check that this process may still write into the folder; only rank 0 may call it.

        Raises:
            AttemptOver: its attempt is over, or another process has taken the lock.
        """
        assert self._lock is not None
        self.attempt.check()
        self._lock.check()

    def _made(self, config: Config, environ: Mapping[str, str]) -> Path:
        """Make and lock the folder, and return its path."""
        castoff_run = self.attempt.run
        folder = expanded(config.training.path, "training.path") / run_name(config, environ)
        self._lock = RunLock(folder, self.attempt)
        mark = folder / "run.json"
        if config.training.fresh and not _made_by(mark, castoff_run) and _has_more(folder):
            aside = _next(folder)
            folder.rename(aside)
            logger.info("Starting over: the earlier folder %s is now %s", folder, aside)
            self._lock = RunLock(folder, self.attempt)
        if not mark.exists():
            replace_file(mark, f"{json.dumps({'castoff_run': castoff_run})}\n".encode())
        return folder

    def write_config(self, config: Config) -> None:
        """Write the configuration to config.yaml; rank 0 writes, others do nothing.

        An existing file with other contents is renamed to config-1.yaml, config-2.yaml and so on.

        Raises:
            OSError: it cannot be written.
        """
        if not self._context.is_main:
            return
        # `fresh` concerns a single start, not the training.
        lasting = msgspec.structs.replace(config.training, fresh=False)
        text = to_yaml(msgspec.structs.replace(config, training=lasting))
        path = self.path / "config.yaml"
        if path.exists():
            if path.read_bytes() == text.encode():  # bytes, because the file may not be valid UTF-8
                return
            numbers = (re.fullmatch(r"config-(\d+)\.yaml", each.name) for each in self.path.iterdir())
            last = max((int(number[1]) for number in numbers if number), default=0)
            path.rename(self.path / f"config-{last + 1}.yaml")
        replace_file(path, text.encode())

    def record_end(self, step: int, *, stopped: bool = False) -> None:
        """Log on rank 0 that nothing is left to train; `stopped`: early stopping ended the training."""
        if not self._context.is_main:
            return
        why = "early stopping ended the training" if stopped else "the training is complete"
        more = "" if stopped else "; to train longer, set a larger training.num_epochs or num_steps"
        logger.info(
            "Nothing is left to train in %s: %s at step %d; to start over, set training.fresh: true "
            "(castoff train --fresh)%s",
            self.path,
            why,
            step,
            more,
        )


def run_name(config: Config, environ: Mapping[str, str]) -> str:
    """The name of a run's folder: the same in every attempt of a castoff run.

    Each member of a job array and each training of a sweep has its own name.

    Raises:
        ConfigError: the name is not valid for a folder.
    """
    configured = config.training.run
    field, name = ("name", config.name) if configured is None else ("training.run", configured)
    if not name or name in (".", "..") or "/" in name or not name.isprintable():
        raise ConfigError(
            [
                f"{field}: is {name!r}, but must be the name of the run's folder, without slashes and "
                "control characters (training.path is the folder that contains it)"
            ]
        )
    castoff_run = Attempt(environ).run
    if configured is None and castoff_run is not None:
        name += f"_{castoff_run}"
    if castoff_run is not None and int(environ.get("CASTOFF_ARRAY_COUNT") or 1) > 1:
        name += f"-{environ.get('CASTOFF_ARRAY_INDEX') or 0}"
    elif config.member is not None:
        name += f"_{config.member.number}"
    return name


def _made_by(mark: Path, castoff_run: str | None) -> bool:
    """Whether an earlier attempt of this run made the folder, and so has applied `fresh` already."""
    if castoff_run is None:
        return False
    try:
        content = json.loads(mark.read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return isinstance(content, dict) and content.get("castoff_run") == castoff_run


def _has_more(folder: Path) -> bool:
    """Whether the folder holds more than run.json and hidden files."""
    return any(path.name != "run.json" and not path.name.startswith(".") for path in folder.iterdir())


def _next(folder: Path) -> Path:
    """The next free name: NAME.1, or one above the highest number."""
    numbers = (
        re.fullmatch(re.escape(folder.name) + r"\.(\d+)", each.name) for each in folder.parent.iterdir()
    )
    last = max((int(number[1]) for number in numbers if number), default=0)
    return folder.with_name(f"{folder.name}.{last + 1}")
