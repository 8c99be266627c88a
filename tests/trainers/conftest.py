"""What all tests of trainings have in common."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Several test processes share a few cores: threads that wait for each other make small things slow."""
    torch.set_num_threads(1)
