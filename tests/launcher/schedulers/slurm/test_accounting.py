"""What sacct prints about the resources of jobs, and what castoff makes of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.runs.records import Usage
from castoff.launcher.schedulers.job_info import JobUsage
from castoff.launcher.schedulers.slurm.accounting import parse_usage, usage_command
from tests.hostile import any_text

from ..pages import page

ANSWER = """\
1|1795855347|12|4|2|200M|00:23.084|||
1.batch|1795855347|12|2|1||00:00.067|14296K|cpu=00:00:00,energy=0,mem=14296K,pages=2|cpu=00:00:00,mem=14296K
1.0|1795855347|12|4|2||00:23.017|60M|cpu=00:00:23,gres/gpuutil=130,mem=1.5G|cpu=00:00:11,gres/gpuutil=65
2_1|1795855400|2|1|1|2000M|1-02:03:04|||
2_1.0|1795855400|2|1|1||00:00.005|3212K||
3|Unknown|0|1|1|2000M|00:00:00|||
4|1795855500|5|8|2|0|00:00:00|||
5|1795855600|5|8|2|1000Mc|00:00:00|||
6|1795855700|5|8|2|3Gn|00:00:00|||
7+1|1795855700|5|8|2|3G|00:01.000|||
"""
"""As Slurm 22.05 prints it, and older ones ReqMem; the values of devices are after the manual."""


def test_starts_of_jobs_with_their_steps() -> None:
    first, member, ungathered, per_cpu, per_node = parse_usage(page(ANSWER))
    used = Usage("sacct", 12, 23.084, 4, 3 << 29, 200 << 20, 0.65)
    assert first == JobUsage("1", None, 1795855347, used)
    of_member = Usage("sacct", 2, 93784.0, 1, 3212 << 10, 2000 << 20)
    assert member == JobUsage("2", 1, 1795855400, of_member)
    assert ungathered.usage == Usage("sacct", 5, None, 8)
    assert per_cpu.usage.memory_requested == 8000 << 20
    assert per_node.usage.memory_requested == 6 << 30


def test_every_start_is_asked_for() -> None:
    command = usage_command(["1", "2"])
    assert command[0] == "sacct" and {"--duplicates", "--jobs=1,2"} <= {*command}


LINES = st.lists(
    any_text(categories=("Cs",)) | st.sampled_from(["1", "1.0", "1G", "00:01", "mem=1K"]), max_size=11
)


@given(st.lists(LINES.map("|".join), max_size=4).map("\n".join), st.integers(0, len(ANSWER)))
def test_no_answer_is_an_error(text: str, cut: int) -> None:
    parse_usage(page(text + "\n"))
    whole = parse_usage(page(ANSWER))
    assert all(one.job in {known.job for known in whole} for one in parse_usage(page(ANSWER[:cut])))
