"""Train a diffusion of proteins: `castoff train sedd [CONFIG]`."""

from __future__ import annotations

import logging
import sys
from argparse import Namespace
from functools import partial

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.sweep import Choose
from castoff.trainers.configuration.yaml_text import read_yaml_file
from castoff.trainers.program.command_line import check_packages, chosen, rank_here, run_on_rank
from castoff.trainers.program.importing import without_collections
from castoff.trainers.program.logs import setup_logging
from castoff.trainers.sedd.start import ranks
from castoff.trainers.sedd.start.configuration import Settings, read
from castoff.trainers.sedd.start.flags import COMMAND_LINE
from castoff.trainers.sedd.start.translation import core_config, without_effect
from castoff.trainers.sedd.start.words import in_own_words

logger = logging.getLogger("castoff.trainers.sedd")


def main() -> None:
    """Train the command line's configuration on this rank, or start the ranks that its flags ask for."""
    arguments = COMMAND_LINE.parsed()
    check_packages("sedd", ("torch", "numpy"))
    me = rank_here()
    run_on_rank(me, partial(_config, arguments, me), _train, beside=arguments.path, own_words=in_own_words)


def _config(arguments: Namespace, me: RankEnv) -> Config:
    """The configuration that this rank trains. Does not return if this process starts ranks instead."""
    fields = read_yaml_file(arguments.path) if arguments.path else None

    def settings(choose: Choose) -> Settings:
        return read(
            fields, COMMAND_LINE.from_flags(arguments), arguments.overrides, choose, origin="command line"
        )

    parsed = settings(chosen(arguments, me, settings))
    if me.launcher == "single":
        options = ranks.launched(arguments, partial(ranks.devices_here, parsed.training.device))
        if options is not None:
            ranks.become(options, sys.argv[1:])
    else:
        ranks.check_layout(arguments, me)
    if me.rank == 0:
        setup_logging(me.rank, parsed.log_level)
        _report(parsed)
    return core_config(parsed)


def _report(settings: Settings) -> None:
    """Log settings that have no effect, and that proteins are synthetic."""
    for note in without_effect(settings):
        logger.info("%s", note)
    if settings.data.datafile is None:
        logger.warning(
            "data.datafile is not given: training on %d synthetic proteins; name a FASTA file with "
            "--datafile FILE",
            settings.data.synthetic,
        )


def _train(config: Config) -> None:
    with without_collections():
        from castoff.trainers.sedd.training import train

    train(config)


if __name__ == "__main__":
    main()
