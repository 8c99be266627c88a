"""Several optimizers of a task as one: with one learning-rate schedule, one state and one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch.optim import Optimizer

OPTIMIZER = "optimizer"
"""Key in a parameter group: the name that the task gave its optimizer, and the optimizer's class."""


class Optimizers(Optimizer):
    """A task's optimizers by name. Its parameter groups are theirs, in order, not copies.

    A scheduler or schedule thus sets the rates of all.
    """

    def __init__(self, each: Mapping[str, Optimizer]):
        self.each = dict(each)
        first, *others = self.each.values()
        common = {name: value for name, value in first.defaults.items() if _in_all(name, others)}
        super().__init__(first.param_groups[:1], common)
        self.gather_groups()
        for name, optimizer in self.each.items():
            for group in optimizer.param_groups:
                group[OPTIMIZER] = f"{name} ({type(optimizer).__name__})"

    def gather_groups(self) -> None:
        """Take the optimizers' parameter groups, which loading a state replaces."""
        self.param_groups = [group for optimizer in self.each.values() for group in optimizer.param_groups]

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make a step of each."""
        assert closure is None
        for optimizer in self.each.values():
            optimizer.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of each."""
        for optimizer in self.each.values():
            optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """All states as one, in torch's format; parameters are numbered through."""
        state: dict[Any, Any] = {}
        groups: list[dict[str, Any]] = []
        for optimizer in self.each.values():
            own, before = optimizer.state_dict(), _parameters(groups)
            state |= {key + before if isinstance(key, int) else key: one for key, one in own["state"].items()}
            groups += [
                {**group, "params": [number + before for number in group["params"]]}
                for group in own["param_groups"]
            ]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from a state of the same optimizers."""
        groups, first = state_dict["param_groups"], 0
        for optimizer in self.each.values():
            own = groups[: len(optimizer.param_groups)]
            groups = groups[len(own) :]
            numbers = range(first, first + _parameters(own))
            first = numbers.stop
            optimizer.load_state_dict(
                {
                    "state": {
                        key: one
                        for key, one in state_dict["state"].items()
                        if key in numbers or not isinstance(key, int)
                    },
                    "param_groups": own,
                }
            )
        self.gather_groups()


def _in_all(name: str, others: list[Optimizer]) -> bool:
    return all(name in other.defaults for other in others)


def _parameters(groups: list[dict[str, Any]]) -> int:
    return sum(len(group["params"]) for group in groups)
