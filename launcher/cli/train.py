"""castoff train: train a network that comes with castoff."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from launcher.cli.help import examples
from launcher.errors import CastoffError

TRAININGS = {
    "dpo": "Tune an inverse folding of proteins by preferences, or train one on structures.",
    "gnn": "Train a network on graphs: causal sets that are read or generated, or your own.",
    "sedd": "Learn a diffusion of proteins by score entropy, and generate some.",
}
"""Each is a package `trainers.NAME` that runs as a program."""


_EXAMPLES = ("castoff train gnn causets.yaml --set training.num_epochs=3", "castoff train gnn --help")


def _listed() -> str:
    width = max(map(len, TRAININGS))
    return "\n".join(f"  {name:{width}}  {words}" for name, words in TRAININGS.items())


@click.command(
    "train",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=f"\b\nTrainings:\n{_listed()}\n\n{examples(*_EXAMPLES)}",
)
@click.argument("name", type=click.Choice(list(TRAININGS)), metavar="NAME")
@click.argument("arguments", nargs=-1, type=click.Path(readable=False))
def command(name: str, arguments: tuple[str, ...]) -> NoReturn:
    """Train one of the networks that come with castoff, as this rank of a job, or alone.

    castoff train gnn causets.yaml --set training.num_epochs=3. What follows NAME is the trainer's:
    castoff train gnn --help shows it. Here castoff becomes python -m trainers.NAME.
    """
    _check_whose_trainers()
    after = click.get_current_context().obj
    program = [sys.executable, *_SAFELY, "-m", "castoff_plugin", f"trainers.{name}", *arguments]
    os.execv(sys.executable, program if after is None else [*program, "--", *after])


_SAFELY = ["-P"] if sys.version_info >= (3, 11) else []
"""Keeps Python from looking for `trainers` in the working directory first."""


def _check_whose_trainers() -> None:
    """See that Python finds our `trainers`, and not another on PYTHONPATH or, before 3.11, in this folder."""
    from importlib.util import find_spec

    ours = Path(__file__).parents[2] / "trainers" / "__init__.py"
    here = [] if _SAFELY else [Path("trainers", "__init__.py"), Path("trainers.py")]
    first, fix = next((path for path in here if path.exists()), None), "go to another folder"
    if first is None:
        found, fix = find_spec("trainers"), "take its folder off PYTHONPATH"
        first = Path(found.origin) if found is not None and found.origin else ours
    if first.resolve() != ours.resolve():
        raise CastoffError(
            f"{first.absolute()} takes precedence over castoff's trainers ({ours.parent}); "
            f"rename it, or {fix}"
        )
