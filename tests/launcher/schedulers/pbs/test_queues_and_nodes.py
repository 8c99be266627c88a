"""What PBS says about its machine, read from answers in the form of its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from castoff.launcher.schedulers.machine_info import AwayHost, MachineInfo, NodeKind, QueueInfo
from castoff.launcher.schedulers.pbs import queues_and_nodes as pbs_limits

ANSWERS = Path(__file__).parents[2] / "answers" / "pbs"


def info(**others: str) -> MachineInfo:
    answers = {about: (ANSWERS / f"{about}.txt").read_text() for about in ("queues", "server", "nodes")}
    return pbs_limits.parse({**answers, **others})


def test_queues() -> None:
    queues = info().queues
    assert queues["debug"] == QueueInfo(1, 2, 300, 3600, max_jobs=1)
    assert queues["capacity"].max_walltime == 168 * 3600
    assert queues["R640002"] == QueueInfo(max_nodes=16, passing=True)
    assert [name for name, queue in queues.items() if not queue.offered] == [
        *("small", "medium", "large", "backfill-small", "backfill-medium", "backfill-large", "old")
    ]


def test_a_routing_queue_takes_what_its_queues_take() -> None:
    assert info().queues["prod"] == QueueInfo(
        *(10, 496, 300, 24 * 3600),
        max_jobs=100,
        routes_to=("small", "medium", "large", "backfill-small", "backfill-medium", "backfill-large"),
    )


def test_a_walltime_has_hours_without_end() -> None:
    lines = "Queue: q\n    resources_max.walltime = 99999:00:00\n    resources_min.walltime = 00:00:00\n\n"
    assert info(queues=lines).queues["q"] == QueueInfo(1, None, 0, 99999 * 3600)


def test_a_routing_queue_has_limits_of_its_own_too() -> None:
    """OpenPBS 23.06.06 refuses what is beyond them (qsub: 188), whatever the queues behind it take."""
    queues = info(
        queues="Queue: r\n    route_destinations = a,b\n    resources_max.walltime = 01:00:00\n"
        "    resources_min.nodect = 2\n\nQueue: a\n    resources_max.walltime = 02:00:00\n\nQueue: b\n\n"
    ).queues
    assert queues["r"] == QueueInfo(2, None, None, 3600, routes_to=("a", "b"))


def test_queues_behind_it_that_nobody_shows() -> None:
    queues = info(queues="Queue: prod\n    route_destinations = small@far, large\n\n").queues
    assert queues == {"prod": QueueInfo(None, routes_to=("small", "large"))}


@pytest.mark.parametrize(
    ("queue", "jobs"),
    [
        ("debug", 1),
        ("debug-scaling", 2),  # one may run and one wait
        ("prod", 100),  # of a project
        ("preemptable", 20),  # the lesser of a project's and a user's
        ("capacity", 2),
        ("small", None),
    ],
)
def test_jobs_of_one_user(queue: str, jobs: int | None) -> None:
    assert info().queues[queue].max_jobs == jobs


def test_a_limit_of_several_parts_is_read_from_several_lines() -> None:
    lines = "Queue: q\n    max_queued = [o:PBS_ALL=500]\n    max_queued = [u:PBS_GENERIC=7]\n\n"
    assert info(queues=lines).queues["q"].max_jobs == 7


def test_server_and_nodes() -> None:
    found = info()
    assert (found.default_queue, found.array_count) == ("prod", 10000)
    assert found.nodes == [NodeKind(64, 4, memory=515_305, nodes=2)], "one that tells nothing is left out"
    assert found.qos is None
    assert (found.name, found.version) == ("polaris-pbs-01", "2025.2.1")
    filesystems = {"among": ["home", "eagle"], "separator": ":"}
    assert found.fields == {"directive_values": {"filesystems": filesystems}}


def node(name: str, **resources: object) -> str:
    lines = [f"     resources_available.{one} = {value}\n" for one, value in resources.items()]
    return f"{name}\n     state = free\n     sharing = default_excl\n{''.join(lines)}\n"


def test_hosts_that_get_no_jobs() -> None:
    offline = node("b", ncpus=64).replace("state = free", "state = down,offline\n     comment = bad = GPU, 2")
    assert info(nodes=node("a", ncpus=64) + offline).away == (AwayHost("b", "down,offline", "bad = GPU, 2"),)


def test_kinds_of_nodes() -> None:
    """What the moms report of their memory differs from node to node."""
    nodes = info(
        nodes=node("a", ncpus=64, ngpus=4, mem="527672488kb", accelerator_model="A100")
        + node("b", ncpus=64, ngpus=4, mem="527672400kb", accelerator_model="A100")
        + node("c", ncpus=64, ngpus=4, mem="263836244kb", accelerator_model="A100")
        + node("d", ncpus=64, mem="527672488kb")
    ).nodes
    assert nodes == [
        NodeKind(64, 4, "A100", 515_305, nodes=2, whole=True),
        NodeKind(64, 4, "A100", 257_652, whole=True),
        NodeKind(64, memory=515_305, whole=True),
    ]


def test_queues_of_nodes() -> None:
    """By what a queue gives each chunk; a resource that a node has not is False."""
    queues = "Queue: debug\n    default_chunk.Qlist = debug\n    default_chunk.ncpus = 64\n\n"
    queues += "Queue: prod\n    default_chunk.broken = False\n\nQueue: any\n    enabled = True\n\n"
    queues += "Queue: route\n    route_destinations = debug@head\n\n"
    nodes = node("a", ncpus=1, Qlist="debug,demand") + node("b", ncpus=2) + node("c", ncpus=3, broken="True")
    nodes += "d\n     queue = prod\n     resources_available.ncpus = 4\n\n"
    assert {one.cores: one.queues for one in info(queues=queues, nodes=nodes).nodes} == {
        1: ("debug", "prod", "any", "route"),
        2: ("prod", "any"),
        3: ("any",),
        4: ("prod",),
    }


def test_who_may_use_a_queue() -> None:
    lines = "Queue: q\n    acl_user_enable = True\n    acl_users = ann,bob\n    acl_groups = g\n"
    lines += "    resources_default.walltime = 01:00:00\n    started = False\n\n"
    assert info(queues=lines).queues["q"].notes == (
        "for the users ann, bob alone",
        "it starts no jobs now",
        "a job without a walltime gets 01:00:00",
    )


def test_a_server_that_reports_nothing() -> None:
    found = info(server="Server: head\n\n", nodes="")
    assert (found.default_queue, found.array_count, found.nodes) == (None, None, [])


@pytest.mark.parametrize("text", ["", "no server", "Server: head\n    max_array_size = many\n\n"])
def test_what_pbs_does_not_write(text: str) -> None:
    with pytest.raises(ValueError):
        info(server=text)


@pytest.mark.parametrize(
    ("mem", "mebibytes"),
    [("24683520kb", 24105), ("48gb", 49152), ("512MB", 512), ("1tb", 1 << 20), ("0kb", None)],
)
def test_memory_in_any_unit(mem: str, mebibytes: int | None) -> None:
    nodes = f"n1\n     resources_available.ncpus = 8\n     resources_available.mem = {mem}\n\n"
    assert info(nodes=nodes).nodes == [NodeKind(8, memory=mebibytes)]
