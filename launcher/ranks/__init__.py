"""This process's rank, from the variables of the launcher that started it.

    from castoff.launcher.ranks import RankEnv

    me = RankEnv.detect()
    me.export()  # now torch.distributed.init_process_group(init_method="env://") works

`python -m castoff.launcher.ranks` shows the rank and the variables it comes from (`--json` for programs).
These modules run in every rank, so they import only the standard library, and little of it.
"""

from __future__ import annotations

from castoff.launcher.errors import PlacementError
from castoff.launcher.ranks.environment import FIELDS, RankEnv, is_stale
from castoff.launcher.ranks.explanation import explain, explain_json

__all__ = ["FIELDS", "PlacementError", "RankEnv", "explain", "explain_json", "is_stale"]
