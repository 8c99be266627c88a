"""Tune an inverse folding of proteins: `castoff train dpo [CONFIG]`."""

from __future__ import annotations

from argparse import Namespace
from functools import partial

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.sweep import Choose
from castoff.trainers.configuration.yaml_text import read_yaml_file
from castoff.trainers.dpo.start.configuration import read
from castoff.trainers.dpo.start.flags import COMMAND_LINE, with_flags
from castoff.trainers.program.command_line import check_packages, chosen, rank_here, run_on_rank
from castoff.trainers.program.importing import without_collections


def main() -> None:
    """Train the command line's configuration on this rank."""
    arguments = COMMAND_LINE.parsed()
    check_packages("dpo", ("torch", "numpy", "gemmi"))
    me = rank_here()
    run_on_rank(
        me,
        lambda: _config(arguments, chosen(arguments, me, partial(_config, arguments))),
        _train,
        beside=arguments.path,
        own_words=with_flags,
    )


def _config(arguments: Namespace, choose: Choose) -> Config:
    fields = read_yaml_file(arguments.path) if arguments.path else None
    given = COMMAND_LINE.from_flags(arguments)
    try:
        return read(fields, given, arguments.overrides, choose, origin="command line")
    except ConfigError as error:
        raise error.reworded(with_flags) from error


def _train(config: Config) -> None:
    with without_collections():
        from castoff.trainers.dpo.training import train

    train(config)


if __name__ == "__main__":
    main()
