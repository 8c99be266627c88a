"""Train a diffusion of proteins: `castoff train sedd [CONFIG]`, or `python -m trainers.sedd [CONFIG]`."""

from __future__ import annotations

import logging
import sys
from argparse import Namespace
from functools import partial

from launcher.ranks import RankEnv
from trainers.core.command_line import check_packages, chosen, rank_here, run_on_rank
from trainers.core.config import Config
from trainers.core.logs import setup_logging
from trainers.core.sweep import Choose
from trainers.core.yaml_text import read_yaml_file
from trainers.sedd.start import flags, ranks
from trainers.sedd.start.configuration import Settings, read
from trainers.sedd.start.translation import core_config, without_effect
from trainers.sedd.start.words import in_own_words

logger = logging.getLogger("trainers.sedd")


def main() -> None:
    """Train on this rank what the command line says, or start the ranks that it asks for."""
    arguments = flags.parsed()
    check_packages("sedd", ("torch", "numpy"))
    me = rank_here()
    run_on_rank(me, partial(_config, arguments, me), _train, beside=arguments.path, own_words=in_own_words)


def _config(arguments: Namespace, me: RankEnv) -> Config:
    """What this rank is to train; does not return where this process starts ranks instead."""
    fields = read_yaml_file(arguments.path) if arguments.path else {}

    def settings(choose: Choose) -> Settings:
        origin = arguments.path or "command line"
        return read(fields, flags.told(arguments), arguments.overrides, choose, origin=origin)

    told = settings(chosen(arguments, me, settings))
    if me.launcher == "single":
        found = ranks.layout(arguments, partial(ranks.devices_here, told.training.device))
        if found is not None:
            ranks.become(found, sys.argv[1:])
    else:
        ranks.check_layout(arguments, me)
    if me.rank == 0:
        setup_logging(me.rank, told.log_level)
        _say(told)
    return core_config(told)


def _say(told: Settings) -> None:
    """What a user may not have meant."""
    for note in without_effect(told):
        logger.info("%s", note)
    if told.data.datafile is None:
        logger.warning(
            "data.datafile is not given: training on %d made-up proteins; name a FASTA file with "
            "--datafile FILE",
            told.data.synthetic,
        )


def _train(config: Config) -> None:
    from trainers.sedd.training import train

    train(config)


if __name__ == "__main__":
    main()
