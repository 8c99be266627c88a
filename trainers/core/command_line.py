"""The command line that every training system has: `castoff train NAME CONFIG`, or `python -m trainers.NAME`.

Loads nothing heavy before the configuration is read: a mistake in it is said at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from launcher.ranks import PlacementError, RankEnv
from trainers.core.config import Config
from trainers.core.failures import end, words


def run(name: str, description: str, needed: Sequence[str], train: Callable[[Config], None]) -> None:
    """Read the command line, and train on this rank; the end of this process if that fails.

    `name` is the system's, and its extra's in pip; `needed` the packages without which it cannot do,
    looked for before `train` is called, which imports what is heavy itself.
    """
    arguments = _parser(name, description).parse_args()
    missing = [package for package in needed if find_spec(package) is None]
    if missing:
        sys.exit(
            f"castoff train: {sys.executable} has no {' and no '.join(missing)}; load the module of a "
            f"site's own torch, then pip install 'castoff[{name}]': a torch from 2.8 on that is there stays"
        )
    # A task's module may lie here or beside the configuration; last, so that it hides nothing.
    for place in (Path.cwd(), Path(arguments.config).absolute().parent):
        if str(place) not in sys.path:
            sys.path.append(str(place))
    try:
        me = RankEnv.detect()
    except PlacementError as error:
        sys.exit("\n".join(words(str(error))))
    folder = None
    try:
        config = Config.load(arguments.config, arguments.overrides)
        folder = str(Path(os.path.expandvars(config.training.path)).expanduser())
        train(config)
    except KeyboardInterrupt:
        os._exit(130)
    except Exception as error:  # noqa: BLE001  # each ends the program; what it says differs
        end(error, me, folder)


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"castoff train {name}",
        description=f"{description} Every rank of a job runs this. The same command again goes on from the "
        "newest checkpoint in the run's folder, <training.path>/<name>; Ctrl-C saves and ends with code "
        "75, a second one ends at once.",
        allow_abbrev=False,
    )
    parser.add_argument("config", metavar="CONFIG", help="YAML of the training run")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="FIELD=VALUE",
        help="set a field of CONFIG, as in training.num_epochs=3; may stand several times",
    )
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument(
        "--resume",
        action="append_const",
        const="training.fresh=false",
        dest="overrides",
        help="go on with what is in the run's folder; the default",
    )
    begin.add_argument(
        "--fresh",
        action="append_const",
        const="training.fresh=true",
        dest="overrides",
        help="begin anew; what is in the run's folder is set aside, as NAME.1",
    )
    return parser
