"""The command line of every training system, `castoff train NAME CONFIG`.

Large packages are imported after the configuration is read, so that its mistakes are reported at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

from castoff.launcher.ranks import PlacementError, RankEnv
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.paths import expanded
from castoff.trainers.configuration.sweep import Choose, Members, by_array, by_hand
from castoff.trainers.configuration.tags import text_of
from castoff.trainers.configuration.yaml_text import in_a_line
from castoff.trainers.distributed.failures import reported, words
from castoff.trainers.program.logs import in_own_words, setup_logging
from castoff.trainers.program.parser import Parser


def run(name: str, description: str, needed: Sequence[str], train: Callable[[Config], None]) -> None:
    """Read the command line, and train on this rank; exits if that fails.

    `name`: the system's name, and its extra's in pip; `needed`: required packages, checked before `train` is
    called, which imports large packages itself.
    """
    parser = new_parser(name, description)
    parser.add_argument("config", metavar="CONFIG", help="YAML of the training run.")
    add_overrides(parser, "training.num_epochs=3")
    add_members(parser)
    arguments = parser.parse_args()
    check_packages(name, needed)
    me = rank_here()

    def read(choose: Choose) -> Config:
        return Config.load(arguments.config, arguments.overrides, choose)

    run_on_rank(me, lambda: read(chosen(arguments, me, read)), train, beside=arguments.config)


def new_parser(name: str, description: str) -> argparse.ArgumentParser:
    """A system's parser, without arguments."""
    return Parser(
        prog=f"castoff train {name}",
        description=f"{description} Every rank of a job runs this. The same command again resumes from the "
        "newest checkpoint in the run's folder, <training.path>/<name>; Ctrl-C saves and ends with code "
        "75, a second one ends at once.",
        allow_abbrev=False,
    )


def add_overrides(parser: argparse.ArgumentParser, example: str) -> None:
    """Add the options that set fields of a configuration, collected in `overrides` in their order."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="FIELD=VALUE",
        help=f"Set a field of CONFIG, as in {example}; repeatable.",
    )
    begin = parser.add_mutually_exclusive_group()
    begin.add_argument(
        "--resume",
        action="append_const",
        const="training.fresh=false",
        dest="overrides",
        help="Resume what is in the run's folder; the default.",
    )
    begin.add_argument(
        "--fresh",
        action="append_const",
        const="training.fresh=true",
        dest="overrides",
        help="Start over; what is in the run's folder is moved to NAME.1.",
    )


def add_members(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a training of a sweep, or list them."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--member", type=int, metavar="N", help="Train only number N of the sweep, from 0.")
    choice.add_argument("--members", action="store_true", help="List the sweep's trainings; train none.")


Read: TypeAlias = "Callable[[Choose], Any]"
"""Reads the configuration named on the command line; the argument picks the sweep's member.

Raises:
    ConfigError: the configuration is invalid; the error lists every problem.
"""


def chosen(arguments: argparse.Namespace, me: RankEnv, read: Read) -> Choose:
    """The function that picks the sweep's member; with `--members`, print the list and exit.

    Raises:
        ConfigError: a member to be listed is invalid.
    """
    if arguments.members:
        listed = _listed(read)
        if me.rank == 0:
            print(listed, flush=True)
        sys.exit(0)
    return by_array if arguments.member is None else by_hand(arguments.member)


_SHOWN = 8
"""The most members listed for a problem."""


def _listed(read: Read) -> str:
    """A line for each member of the sweep, after a check of all members."""
    sweeps: list[Members] = []

    def first(data: Mapping[str, Any], problems: list[str]) -> dict[str, Any] | None:
        sweeps.append(Members(data, problems))
        return None if problems else sweeps[0].fields(0, problems)

    read(first)
    members = sweeps[0]
    if not members.swept:
        return "no sweep: it stands for one training"
    wrong: dict[str, list[int]] = {}
    for number in range(members.count):
        try:
            read(by_hand(number))
        except ConfigError as error:
            for problem in error.problems:
                wrong.setdefault(problem, []).append(number)
    if wrong:
        raise ConfigError([f"{problem} ({_of(numbers)})" for problem, numbers in wrong.items()])
    lines = []
    for number in range(members.count):
        values = members.values(number).items()
        given = (f"{text_of(place)}={in_a_line(value)}" for place, value in values)
        lines.append(f"{number}: {', '.join(given)}")
    return "\n".join([*lines, f"array: {{count: {members.count}}}"])


def _of(numbers: list[int]) -> str:
    some = ", ".join(map(str, numbers[:_SHOWN]))
    return f"member {some}{f' and {len(numbers) - _SHOWN} more' if len(numbers) > _SHOWN else ''}"


def check_packages(name: str, needed: Sequence[str]) -> None:
    """Check that a system's required packages are installed; otherwise exit with instructions."""
    missing = [package for package in needed if find_spec(package) is None]
    if missing:
        sys.exit(
            f"castoff train: {sys.executable} has no {' and no '.join(missing)}; load the module of a "
            f"site's own torch, then pip install 'castoff[{name}]': an installed torch from 2.8 on is kept"
        )


def rank_here() -> RankEnv:
    """This process's rank; exits with the reason if it cannot be determined."""
    try:
        return RankEnv.detect()
    except PlacementError as error:
        sys.exit("\n".join(words(str(error))))


_NAME_FIELDS = (
    "castoff.trainers.checkpointing.manager",
    "castoff.trainers.optimization.engine",
    "castoff.trainers.checkpointing.run_folder",
    "castoff.trainers.reporting.out_of_memory",
)


def make_importable(beside: str | None = None) -> None:
    """Append the working directory and the configuration's folder to sys.path: last, so as not to hide
    modules.
    """
    for folder in (Path.cwd(), *([Path(beside).absolute().parent] if beside else [])):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))


def run_on_rank(
    me: RankEnv,
    load: Callable[[], Config],
    train: Callable[[Config], None],
    beside: str | None = None,
    own_words: Callable[[str], str] = str,
) -> None:
    """Load a configuration and train; exits if that fails.

    `beside`: the configuration's file; a task's module may be next to it. `own_words` translates messages and
    log lines about fields, if a system has other names for the core's fields.
    """
    make_importable(beside)
    with reported(me, ends=True):
        config = load()
    setup_logging(me.rank, config.log_level)
    with reported(me, own_words=own_words, ends=True):
        folder = str(expanded(config.training.path, "training.path"))
    log = in_own_words(own_words, *_NAME_FIELDS, f"castoff.trainers.{config.name}")
    with reported(me, folder, own_words, ends=True), log:
        train(config)
