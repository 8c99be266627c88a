from __future__ import annotations

import compileall
import sys
from pathlib import Path

import pytest

from bench import start
from bench.start import Cost


def test_each_way_starts_as_many_ranks_of_the_same_program(tmp_path: Path) -> None:
    found = start.ways()
    assert {"preload", "torchrun", "plain"} <= found.keys()
    assert all(str(start.RANKS) in argv for argv in found.values())
    for number, text in enumerate(start.PROGRAMS.values()):
        (tmp_path / f"program_{number}.py").write_text(text)
    assert compileall.compile_dir(tmp_path, quiet=2)


def test_what_a_program_and_its_children_cost(tmp_path: Path) -> None:
    busy = (
        "import os, time\nos.fork()\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass\n"
    )
    found = start.cost(
        [sys.executable, "-c", f"{busy}\ntry: os.wait()\nexcept ChildProcessError: pass"], tmp_path
    )
    assert found.cpu >= 0.2
    with pytest.raises(SystemExit, match="exited with 3: why"):
        start.cost([sys.executable, "-c", "print('why'); raise SystemExit(3)"], tmp_path)


@pytest.mark.parametrize(
    ("cpu", "wall", "word"), [(1.5, 2.9, "met"), (1.6, 1.0, "NOT MET"), (1.0, 3.1, "NOT MET")]
)
def test_the_bars(cpu: float, wall: float, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    start._report("all-reduce", {"preload": [Cost(wall, cpu)], "torchrun": [Cost(10.0, 10.0)]})
    assert capsys.readouterr().out.rstrip().endswith(f": {word}")
