"""Attempts of a training: to its end, to a stop, or to a kill."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.trainers.toys import Ranks

Program = Callable[..., Any]


def attempt(program: Program, folder: Path, world_size: int, when: dict[str, int], *more: Any) -> Any:
    """What the ranks give; their exit codes and outcome if they do not come to an end."""
    ranks_folder = folder.with_name(f"{folder.name}-ranks-{len(list(folder.parent.iterdir()))}")
    files = {"CASTOFF_OUTCOME_FILE": f"{ranks_folder}-outcome", "CASTOFF_STOP_FILE": f"{ranks_folder}-stop"}
    ranks = Ranks(ranks_folder, world_size, files)
    ranks.start(program, folder, when, *more)
    if not when:
        answers = ranks.answers()
        assert Path(files["CASTOFF_OUTCOME_FILE"]).read_text() == "done\n"
        return answers
    if "die_at" in when:
        ranks.processes[-1].wait()
        ranks.kill()
        return ranks.log(0)
    assert ranks.end() == [0] * world_size, ranks.log(0)
    assert Path(files["CASTOFF_OUTCOME_FILE"]).read_text() == "resume\n"
    return ranks.log(0)
