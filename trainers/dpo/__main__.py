"""Tune an inverse folding of proteins: `castoff train dpo [CONFIG]`, or `python -m trainers.dpo [CONFIG]`."""

from __future__ import annotations

from argparse import Namespace
from functools import partial

from trainers.configuration.config import Config
from trainers.configuration.fields import ConfigError
from trainers.configuration.sweep import Choose
from trainers.configuration.yaml_text import read_yaml_file
from trainers.dpo.start import flags
from trainers.dpo.start.configuration import read
from trainers.program.command_line import check_packages, chosen, rank_here, run_on_rank


def main() -> None:
    """Train on this rank what the command line says."""
    arguments = flags.parsed()
    check_packages("dpo", ("torch", "numpy", "gemmi"))
    me = rank_here()
    run_on_rank(
        *(me, lambda: _config(arguments, chosen(arguments, me, partial(_config, arguments))), _train),
        beside=arguments.path,
        own_words=flags.with_flags,
    )


def _config(arguments: Namespace, choose: Choose) -> Config:
    fields = read_yaml_file(arguments.path) if arguments.path else {}
    given = flags.told(arguments)
    try:
        return read(fields, given, arguments.overrides, choose, origin=arguments.path or "command line")
    except ConfigError as error:
        raise ConfigError(list(map(flags.with_flags, error.problems)), error.origin) from error


def _train(config: Config) -> None:
    from trainers.dpo.training import train

    train(config)


if __name__ == "__main__":
    main()
