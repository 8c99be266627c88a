from __future__ import annotations

from pathlib import Path

import pytest

from castoff.launcher.launchers.local.out_of_memory import oom_kills

UNIFIED = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"
OLD = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n"


@pytest.mark.parametrize(
    ("own", "counted", "kills"),
    [
        ("0::/job_7/step_0\n", {"job_7/step_0/memory.events": UNIFIED}, 2),
        ("4:memory:/job\n3:cpu,cpuacct:/\n0::/\n", {"memory/job/memory.oom_control": OLD}, 1),
        ("0::/\n4:memory:/job\n", {"memory/job/memory.oom_control": OLD}, 1),
        ("4:memory:/job\n", {"memory/job/memory.oom_control": "under_oom 0\n"}, 0),  # a kernel before 4.13
        ("0::/job\n", {}, 0),
        ("0::/job\n", {"job/memory.events": "oom_kill"}, 0),
        ("", {}, 0),
    ],
)
def test_what_the_kernel_counts(own: str, counted: dict[str, str], kills: int, tmp_path: Path) -> None:
    (tmp_path / "own").write_text(own)
    for name, text in counted.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    assert oom_kills(tmp_path, tmp_path / "own") == kills


def test_a_system_without_control_groups(tmp_path: Path) -> None:
    assert oom_kills(tmp_path, tmp_path / "own") == 0
