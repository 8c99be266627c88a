"""Parts of the trainer for programs with their own loop, or with Lightning's or Hugging Face's.

Each name is loaded at its first use: a program that uses only `StopSignal` does not need torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from castoff.trainers.distributed.requests import StoppedEarly
    from castoff.trainers.resumable.hugging_face import trainer_callback
    from castoff.trainers.resumable.lightning import lightning_callback
    from castoff.trainers.resumable.loader import Loader
    from castoff.trainers.resumable.run import Run
    from castoff.trainers.resumable.stop_signal import StopSignal

_HOMES = {
    "Loader": "castoff.trainers.resumable.loader",
    "Run": "castoff.trainers.resumable.run",
    "StopSignal": "castoff.trainers.resumable.stop_signal",
    "StoppedEarly": "castoff.trainers.distributed.requests",
    "lightning_callback": "castoff.trainers.resumable.lightning",
    "trainer_callback": "castoff.trainers.resumable.hugging_face",
}

__all__ = ["Loader", "Run", "StopSignal", "StoppedEarly", "lightning_callback", "trainer_callback"]


def __getattr__(name: str) -> Any:
    """Import a name's module at its first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The package's names, including those not loaded yet."""
    return sorted({*globals(), *__all__})
