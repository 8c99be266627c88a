"""Methods of a user's task that are checked at the start: signatures, and names that are misspelt."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.task.methods import check_methods
from tests.trainers.task.test_hooks import Watching
from tests.trainers.toys import Toy


def test_arguments_of_a_method_that_is_called_late() -> None:
    class Wrong(Toy):
        def on_step(self, state: Any) -> None:  # type: ignore[override]
            pass

        def on_checkpoint(self, state: Any, path: Any, more: Any) -> None:  # type: ignore[override]
            pass

        def export(self, model: Any, folder: Any) -> None:  # type: ignore[override]
            pass

    with pytest.raises(ConfigError) as raised:
        check_methods(Wrong(), warn=True)
    first, second, third = raised.value.problems
    kind = Wrong.__qualname__
    assert first.startswith(f"task: {kind}.on_step takes other arguments (too many positional arguments)")
    assert first.endswith("; write on_step(self, state, metrics)")
    assert second.endswith("'more'); write on_checkpoint(self, state, path)")
    assert third.endswith("'better'); write export(self, model, folder, *, better)")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("on_steps", "on_step"),
        ("on_step_end", "on_step"),
        ("on_validate", "on_validation"),
        ("evalute", "evaluate"),
        ("load_state_dic", "load_state_dict"),
    ],
)
def test_a_misspelt_name(name: str, meant: str, caplog: pytest.LogCaptureFixture) -> None:
    kind = type("Misspelt", (Toy,), {name: lambda *_: None})
    check_methods(kind(), warn=False)
    assert not caplog.records
    check_methods(kind(), warn=True)
    (said,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    expected = (
        f"Misspelt.{name} is not a method of Task, so the trainer does not call it; did you mean {meant}?"
    )
    assert said.startswith(expected)


def test_names_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    own = [
        "losses",
        "loss_fn",
        "collate_fn",
        "build_dataset",
        "on_epoch",
        "evaluate_all",
        "test",
        "_on_steps",
    ]
    kind = type("Own", (Watching,), {name: lambda *_: None for name in [*own, "on_steps"]})
    check_methods(kind(), warn=True)
    assert not caplog.records
