"""The training on causal sets; a module of its own, because loading it takes seconds."""

from __future__ import annotations

from tests.cluster.slow import Slow
from trainers.gnn.task import CausetTask


class SlowCausets(Slow, CausetTask):
    """With time to interrupt it."""
