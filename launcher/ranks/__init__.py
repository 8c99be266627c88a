"""This process's rank, from the variables of the launcher that started it.

    from castoff.launcher.ranks import RankEnv

    me = RankEnv.detect()
    me.export()  # now torch.distributed.init_process_group(init_method="env://") works

`python -m castoff.launcher.ranks` shows what is found and from where (`--json` for programs). Standard
library only, and little of it: this runs once in every rank.
"""

from __future__ import annotations

from castoff.launcher.errors import PlacementError
from castoff.launcher.ranks.environment import FIELDS, RankEnv, is_stale
from castoff.launcher.ranks.explanation import explain, explain_json

__all__ = ["FIELDS", "PlacementError", "RankEnv", "explain", "explain_json", "is_stale"]
