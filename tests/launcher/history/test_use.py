"""What the samples of a job say, and the advice that follows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.history.attempt_use import with_advice
from castoff.launcher.history.members_use import MEMBERS, members_use
from castoff.launcher.history.use import (
    NODES,
    DeviceUse,
    NodeUse,
    Use,
    parse,
    samples_of,
    summarised,
    use_of,
    use_words,
)
from castoff.launcher.history.use_advice import advice, advice_to_members
from castoff.launcher.runs.records import Facts
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus, MemberStatus

GIB = 1 << 30
FACTS: dict[str, Any] = {
    "host": "n1",
    "by": "cgroup",
    "node_cpus": 64,
    "node_mem": 256 * GIB,
    "limit": 64 * GIB,
}
GPUS = [{"name": "A100", "mem": 40 * GIB}] * 2


def line(at: float, **keys: Any) -> dict[str, Any]:
    return {"t": at, "dt": 5.0, "cpu": 2.0, "mem": GIB, "cpus": 8, **keys}


def text(*lines: dict[str, Any]) -> bytes:
    return "".join(f"{json.dumps(one)}\n" for one in lines).encode()


def test_means_are_weighted_by_time_and_memory_is_the_most() -> None:
    found = parse(
        text(
            {**FACTS, "gpus": GPUS},
            line(5, gpu=[0.5, None], gpu_mem=[GIB, None]),
            line(20, dt=15.0, cpu=6.0, mem=3 * GIB, gpu=[0.1, None], gpu_mem=[2 * GIB, 7]),
        )
    )
    assert found is not None
    use = summarised(found)
    assert (use.seconds, use.cpu, use.memory) == (20.0, 5.0, 3 * GIB)
    first, second = use.devices
    assert first.use == pytest.approx(0.2)
    assert (first.memory, first.total) == (2 * GIB, 40 * GIB)
    assert second == DeviceUse("n1", "A100", None, 7, 40 * GIB)


def test_facts_with_more_gpus_count_from_the_beginning() -> None:
    more = {**FACTS, "gpus": GPUS}
    found = parse(
        text(
            {**FACTS, "gpus": GPUS[:1]},
            line(5, gpu=[0.5], gpu_mem=[1]),
            more,
            line(10, gpu=[0.7, 0.2], gpu_mem=[1, 2]),
        )
    )
    assert found is not None
    assert [round(one.use or 0, 2) for one in summarised(found).devices] == [0.6, 0.2]


LINES = [line(float(at)) for at in range(1, 6)]


@given(cut=st.integers(0, len(text(FACTS, *LINES))), rest=st.binary(max_size=40))
def test_a_file_cut_anywhere_keeps_its_whole_lines(cut: int, rest: bytes) -> None:
    """A full disk cuts a line; the next begins on a line of its own."""
    whole = text(FACTS, *LINES)
    found = parse(whole[:cut] + b"\n" + rest.replace(b"{", b"") + b"\n" + text(LINES[0]))
    first = whole.index(b"\n")
    assert (found is None) == (cut < first)
    if found is not None:
        assert len(found.samples) == max(whole[:cut].count(b"\n") - 1, 0) + 1 + (
            whole[cut : cut + 1] == b"\n" and cut > first
        )


@pytest.mark.parametrize(
    "odd", [{"cpu": -1.0}, {"dt": 0.0}, {"gpu": [7.0]}, {"mem": "much"}, {"t": None}], ids=str
)
def test_a_line_with_an_impossible_value_is_left_out(odd: dict[str, Any]) -> None:
    found = parse(text(FACTS, line(1), line(2, **odd)))
    assert found is not None
    assert len(found.samples) == 1


def made(folder: Path, nodes: int) -> RunDirectory:
    use = folder / "attempts" / "0.0" / "use"
    use.mkdir(parents=True)
    for node in range(nodes):
        (use / f"node-{node:05d}.jsonl").write_bytes(text({**FACTS, "host": f"n{node}"}, line(1), line(6)))
    return RunDirectory(folder)


def test_few_of_many_nodes_are_read(tmp_path: Path) -> None:
    run = made(tmp_path, 40)
    use = use_of(run, 0, 0)
    assert use is not None
    assert (len(use.nodes), use.of) == (NODES, 40)
    assert [node.host for node in use.nodes[:3]] == ["n0", "n2", "n5"]
    assert use_words(use).endswith(f"on {NODES} of 40 nodes")
    assert len(samples_of(run, 0, 0, 3)) == 3


def test_a_file_is_read_again_once_it_has_grown(tmp_path: Path) -> None:
    run = made(tmp_path, 1)
    before = use_of(run, 0, 0)
    with (tmp_path / "attempts/0.0/use/node-00000.jsonl").open("ab") as file:
        file.write(text(line(11)))
    after = use_of(run, 0, 0)
    assert before and after
    assert (before.seconds, after.seconds) == (10.0, 15.0)
    assert use_of(run, 0, 1) is None


def node(**fields: Any) -> NodeUse:
    """A node of 64 threads whose job asked for 8 of them and for 64 GiB, and used most of both."""
    known: dict[str, Any] = {
        **{"host": "n1", "seconds": 600.0, "cpu": 7.0, "cpus": 8, "node_cpus": 64, "memory": 50 * GIB},
        **{
            "limit": 64 * GIB,
            "node_memory": 256 * GIB,
            "read": 0.0,
            "write": 0.0,
            "received": 0.0,
            "sent": 0.0,
        },
    }
    return NodeUse(**{**known, **fields})


def gpus(*uses: float | None, memory: int = 30 * GIB, host: str = "n1") -> list[DeviceUse]:
    return [DeviceUse(host, "A100", use, memory, 40 * GIB) for use in uses]


def member(number: int, attempts: int = 1) -> MemberStatus:
    begun = [
        AttemptStatus(each, "ended", "done", 0, None, "n1", 1.0, 2.0, None, "logs")
        for each in range(attempts)
    ]
    return MemberStatus(number, "ended", "done", begun)


def test_the_members_of_an_array(tmp_path: Path) -> None:
    """Means over some of them, for each its newest attempt; those that have not begun do not count."""
    run = made(tmp_path, 1)
    (tmp_path / "plan.json").write_text('{"cores_per_rank": 8, "layout": [[1, 1]]}')
    members = [member(0, 0), *map(member, range(1, 2 * MEMBERS)), member(2 * MEMBERS, 2)]
    assert members_use(run, members) is None
    for number in range(1, 2 * MEMBERS + 1):
        use = tmp_path / "attempts" / f"{number}.{len(members[number].attempts) - 1}" / "use"
        use.mkdir(parents=True)
        samples = [line(at, dt=100.0, cpu=number % 4) for at in (100, 200)]
        (use / "node-00000.jsonl").write_bytes(text(FACTS, *samples))
    three = members_use(run, members[:4])
    assert three is not None and three.members == [1, 2, 3]
    assert three.words == "2.0 of 8 CPUs, memory 1.0 GiB of 64.0 GiB; means and most memory of 3 members"
    assert three.advice == "it held 1.0 GiB of the 64.0 GiB it has: memory: 2G would do"
    some = members_use(run, members)
    assert some is not None and len(some.members) == MEMBERS
    assert some.words.endswith(f"means and most memory of {MEMBERS} of {2 * MEMBERS} members")
    last = members_use(run, members[-1:])
    assert last is not None and last.words.endswith("of 1 member")


def test_advice_to_members_is_for_all_of_them() -> None:
    idle, busy = node(devices=gpus(0.0)), node(devices=gpus(0.9))
    assert advice_to_members(Use([idle, idle], 2), PLANNED).startswith("none of its 2 GPUs computed: ")
    assert advice_to_members(Use([idle, busy], 2), PLANNED) == ""
    assert advice_to_members(Use([node(memory=8 * GIB), node(memory=40 * GIB)], 2), PLANNED) == ""


def test_words() -> None:
    use = Use([node(devices=gpus(0.34))], 1)
    assert use_words(use, 0.41) == (
        "GPU 34% with 30.0 GiB of 40.0 GiB, waiting for data 41%, 7.0 of 8 CPUs, memory 50.0 GiB of 64.0 GiB"
    )
    two = Use([node(devices=gpus(0.9, None), limit=None, cpus=0), node(devices=gpus(0.5, 0.4))], 2)
    assert use_words(two).startswith("4 GPUs 60% with ")


PLANNED = Facts(layout=[(4, 1)], cores_per_rank=2, devices_per_rank=1)
ONE_RANK = msgspec.structs.replace(PLANNED, layout=[(1, 1)], cores_per_rank=8, devices_per_rank=4)


@pytest.mark.parametrize(
    ("nodes", "planned", "data_wait", "wanted"),
    [
        ([node()], PLANNED, None, ""),
        ([node(devices=gpus(0.9))], PLANNED, 0.1, ""),
        ([node(devices=gpus(0.0))], PLANNED, None, "its GPU did not compute: "),
        ([node(devices=gpus(0.0, 0.0))], PLANNED, None, "none of its 2 GPUs computed: "),
        ([node(devices=gpus(0.9, 0, 0, 0))], PLANNED, None, "1 of its 4 GPUs computed: ranks_per_node: 1 "),
        (
            [node(devices=gpus(0.9, 0, 0, 0))],
            ONE_RANK,
            None,
            "1 of its 4 GPUs computed: devices_per_rank: 1 ",
        ),
        (
            [node(devices=gpus(0.9)), node(devices=gpus(0.0, host="n2"))],
            PLANNED,
            None,
            "only GPUs of 1 of 2 nodes computed: nodes: 1 ",
        ),
        ([node(memory=63 * GIB)], PLANNED, None, "it held 98% of its memory on n1: memory: 80G "),
        ([node(devices=gpus(0.6))], PLANNED, 0.41, "it waits for data 41% of the time: more processes"),
        (
            [node(devices=gpus(0.6), cpu=7.9)],
            PLANNED,
            0.41,
            "it waits for data 41% of the time: its cores are busy: cores_per_rank: 4",
        ),
        (
            [node(devices=gpus(0.3), cpu=7.9)],
            PLANNED,
            None,
            "GPUs compute 30% of the time, and all cores are busy",
        ),
        (
            [node(devices=gpus(0.3, memory=GIB))],
            PLANNED,
            None,
            "GPUs compute 30% of the time and hold 2% of their",
        ),
        (
            [node(memory=8 * GIB)],
            PLANNED,
            None,
            "it held 8.0 GiB of the 64.0 GiB it has: memory: 10G would do",
        ),
        ([node(cpu=1.2)], ONE_RANK, None, "it kept 1.2 of its 8 CPUs busy: cores_per_rank: 2 would do"),
        # Nobody else could use what is left of a whole node.
        ([node(cpu=1.2, cpus=64)], ONE_RANK, None, ""),
        ([node(memory=8 * GIB, limit=250 * GIB)], PLANNED, None, ""),
        ([node(memory=8 * GIB, limit=None)], PLANNED, None, ""),
        ([node(devices=gpus(None))], PLANNED, None, ""),
        ([node(seconds=30.0, devices=gpus(0.0))], PLANNED, None, ""),
    ],
)
def test_advice(nodes: list[NodeUse], planned: Facts, data_wait: float | None, wanted: str) -> None:
    found = advice(Use(nodes, len(nodes)), planned, data_wait)
    assert found.startswith(wanted)
    assert bool(found) == bool(wanted)


@pytest.mark.parametrize(
    ("asked", "ranks", "uses", "wanted"),
    [
        (0, 1, (0.0, None), []),
        (0, 1, (0.3, 0.0), [0.3]),
        (1, 1, (0.0, 0.8, 0.0), [0.8]),
        (1, 2, (0.1, 0.0, 0.8), [0.1, 0.8]),
        (1, 2, (0.0, 0.0, 0.0), [0.0, 0.0]),
        (1, 2, (0.0, 0.0, 0.8), [0.0, 0.8]),
        (1, 4, (0.0, 0.8), [0.0, 0.8]),
    ],
)
def test_gpus_of_a_node_that_are_not_the_jobs_are_left_out(
    asked: int, ranks: int, uses: tuple[float, ...], wanted: list[float]
) -> None:
    """Nothing told the sampler which are."""
    planned = Facts(devices_per_rank=asked, layout=[(ranks, 1)])
    found = with_advice(Use([node(devices=gpus(*uses))], 1), planned, None)
    assert [device.use for device in found.use.devices] == wanted
