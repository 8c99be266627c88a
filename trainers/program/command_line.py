"""The command line that every training system has, `castoff train NAME CONFIG`.

Loads nothing heavy before the configuration is read: a mistake in it is said at once.
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


def run(name: str, description: str, needed: Sequence[str], train: Callable[[Config], None]) -> None:
    """Read the command line, and train on this rank; the end of this process if that fails.

    `name` is the system's, and its extra's in pip; `needed` the packages without which it cannot do,
    looked for before `train` is called, which imports what is heavy itself.
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
    """A system's parser, with nothing in it yet."""
    return argparse.ArgumentParser(
        prog=f"castoff train {name}",
        description=f"{description} Every rank of a job runs this. The same command again resumes from the "
        "newest checkpoint in the run's folder, <training.path>/<name>; Ctrl-C saves and ends with code "
        "75, a second one ends at once.",
        allow_abbrev=False,
    )


def add_overrides(parser: argparse.ArgumentParser, example: str) -> None:
    """What sets fields of any configuration: their list is `overrides`, in the order of the command line."""
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
    """What chooses among the trainings of a configuration with sweeps, where no array of jobs does."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--member", type=int, metavar="N", help="Train only number N of the sweep, from 0.")
    choice.add_argument("--members", action="store_true", help="List the sweep's trainings; train none.")


Read: TypeAlias = "Callable[[Choose], Any]"
"""Reads the configuration that the command line names, with a member that something chooses.

Raises:
    ConfigError: with every problem that it has.
"""


def chosen(arguments: argparse.Namespace, me: RankEnv, read: Read) -> Choose:
    """What chooses a member, as the command line says; the end of this process if that asks for their list.

    Raises:
        ConfigError: they are to be listed, and something is wrong with one of them.
    """
    if arguments.members:
        listed = _listed(read)
        if me.rank == 0:
            print(listed, flush=True)
        sys.exit(0)
    return by_array if arguments.member is None else by_hand(arguments.member)


_SHOWN = 8
"""Members whose mistakes are shown."""


def _listed(read: Read) -> str:
    """A line for each member, all of which have been read."""
    found: list[Members] = []

    def first(data: Mapping[str, Any], problems: list[str]) -> dict[str, Any] | None:
        found.append(Members(data, problems))
        return None if problems else found[0].fields(0, problems)

    read(first)
    members = found[0]
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
    """See that the packages that a system needs are there, or end this process and say how to get them."""
    missing = [package for package in needed if find_spec(package) is None]
    if missing:
        sys.exit(
            f"castoff train: {sys.executable} has no {' and no '.join(missing)}; load the module of a "
            f"site's own torch, then pip install 'castoff[{name}]': a torch from 2.8 on that is there stays"
        )


def rank_here() -> RankEnv:
    """This process's rank; where it cannot be determined, the process ends with the reason."""
    try:
        return RankEnv.detect()
    except PlacementError as error:
        sys.exit("\n".join(words(str(error))))


_NAME_FIELDS = (
    "castoff.trainers.checkpointing.manager",
    "castoff.trainers.optimization.engine",
    "castoff.trainers.checkpointing.run_folder",
)


def make_importable(beside: str | None = None) -> None:
    """Have modules found that lie here, or beside a configuration's file; last, so that they hide nothing."""
    for place in (Path.cwd(), *([Path(beside).absolute().parent] if beside else [])):
        if str(place) not in sys.path:
            sys.path.append(str(place))


def run_on_rank(
    me: RankEnv,
    load: Callable[[], Config],
    train: Callable[[Config], None],
    beside: str | None = None,
    own_words: Callable[[str], str] = str,
) -> None:
    """Load a configuration and train what it says; the end of this process if that fails.

    `beside`: the configuration's file; a task's module may lie next to it. `own_words` is what becomes of
    messages, and of the log's lines about fields, where a system calls the core's fields by other names.
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
