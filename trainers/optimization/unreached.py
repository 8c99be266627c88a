"""Messages about parameters without a gradient, on several ranks or on one."""

from __future__ import annotations

from collections.abc import Sequence

from castoff.trainers.configuration.fields import few

_FREEZE = "call requires_grad_(False) in build_model on what is never used"
_MEND = f"{_FREEZE}, or, where it is used in some batches, set parallel.find_unused_parameters: true"
_SHARDED = f"{_FREEZE}; what only some batches use needs parallel.strategy: ddp"


def depends_on_none(step: int) -> str:
    """The message if no parameter gets a gradient in a step."""
    return (
        f"model: the loss of step {step} depends on no parameter of the model, so nothing is learned: "
        "compute Loss.total from the output of the model that is passed to loss(), without detach(), "
        "item(), numpy() or no_grad(), and not from another network"
    )


def only_zeros(step: int, too: str = "") -> str:
    """The message if all gradients are zero; `too`: what else is zero."""
    are = "are" if too else "is"
    return (
        f"model: {too}every gradient of step {step} {are} zero, so nothing is learned: check that "
        "Loss.total depends on the model's output (which is not multiplied by 0, rounded or compared) "
        "and that not all units are saturated. If this is intended, training.check_first_step: false "
        "skips this check"
    )


def unused(step: int, names: Sequence[str], micro: str, sharded: bool) -> str:
    """The message if parameters get no gradient on one of several ranks; `micro`: part of the step."""
    return (
        f"model: the loss of {micro}step {step} does not depend on {few(names)}, for whose gradients ranks "
        f"wait; {_SHARDED if sharded else _MEND}"
    )


def unused_alone(step: int, names: Sequence[str]) -> str:
    """The warning if parameters get no gradient on a single rank, where training continues."""
    return (
        f"model: the loss of step {step} does not depend on {few(names)}: these parameters learn "
        f"nothing, and on several ranks training would stop here; {_MEND}"
    )
