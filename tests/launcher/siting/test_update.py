"""A profile with what its scheduler says now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.config.site import Search, Site
from castoff.launcher.schedulers.machine_info import MachineInfo, NodeKind, QueueInfo
from castoff.launcher.schedulers.pbs import queues_and_nodes as pbs
from castoff.launcher.siting.check import Comparison
from castoff.launcher.siting.draft import Draft, profile_text
from castoff.launcher.siting.update import Updated, updated

ANSWERS = Path(__file__).parents[1] / "answers"
PATH = Path("/nowhere/castoff/sites/here.yaml")

KIND = NodeKind(12, 4, "a100", 24000, nodes=3, sockets=2, queues=("main",))
INFO = MachineInfo(
    queues={"main": QueueInfo(max_nodes=8, max_walltime=86400), "slow": QueueInfo(min_nodes=2)},
    qos={"normal": QueueInfo(max_jobs=5)},
    default_queue="main",
    array_count=1001,
    nodes=[KIND],
    sources={
        "queues": "scontrol show partition",
        "nodes": "sinfo",
        "qos": "sacctmgr show qos",
        "array": "scontrol",
    },
)

OWN = """\
# The lab's machine; ask Ann.
description: the lab
extends: slurm
other_queues: false
default_queue: main
queues:
  # ends at midnight
  main:
    ranges: [{max_nodes: 4, max_walltime: 24h}]   # since May
    source: Ann
    date: 2026-05-01
  gone: {source: Ann, date: 2026-05-01}
node:
  sockets: ["0-5", "6-11"]   # of lscpu
  devices: [2, 2]
  device_variable: CUDA_VISIBLE_DEVICES
  reserved_cores: "0"
  ranks_per_device: 2
  memory: 24G
  source: lscpu
  date: 2026-05-01

# whose it is
defaults:
  account: lab
"""


def load(text: str) -> Site:
    return Site.load("here", search=Search({"XDG_CONFIG_HOME": "/nowhere"}, None, draft=(PATH, text)))


def update(text: str, info: MachineInfo, **more: Any) -> Updated:
    site = load(text)
    draft = Draft("here", site.scheduler, "Slurm", "2026-11-26", "login1", **more)
    return updated(text, site, info, Comparison(site, info), draft, load)


def lines(before: str, after: str) -> tuple[list[str], list[str]]:
    """Those that went and those that came."""
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line and line not in old]


def test_all_that_differs_and_nothing_else() -> None:
    new = update(OWN, INFO)
    assert new.left == []
    gone, came = lines(OWN, new.text)
    assert gone == [
        "    ranges: [{max_nodes: 4, max_walltime: 24h}]   # since May",
        "    source: Ann",
        "    date: 2026-05-01",
        "  gone: {source: Ann, date: 2026-05-01}",
    ]
    assert came == [
        "    ranges: [{max_nodes: 8, max_walltime: 24h}]   # since May",
        '    source: "Ann; scontrol show partition main"',
        "    date: 2026-11-26",
        "  slow:",
        "    ranges: [{min_nodes: 2}]",
        "    source: scontrol show partition slow",
        "    date: 2026-11-26",
    ]
    assert Comparison(load(new.text), INFO).differences == []


def test_what_the_scheduler_does_not_say_stays() -> None:
    """A submit filter may have that limit."""
    info = INFO._replace(queues={"main": QueueInfo(max_nodes=8), "gone": QueueInfo()})
    assert "[{max_nodes: 8, max_walltime: 24h}]" in update(OWN, info).text


def test_several_limits_of_one_queue() -> None:
    """Each of them is written, into one range."""
    new = update(OWN, INFO._replace(queues={"main": QueueInfo(2, 8, 60, 3600, max_jobs=3)}))
    queue = load(new.text).queues["main"]
    (bounds,) = queue.ranges
    assert (bounds.min_nodes, bounds.max_nodes, bounds.min_walltime, bounds.max_walltime) == (
        2,
        8,
        "1m",
        "1h",
    )
    assert queue.max_jobs == 3 and new.text.count("scontrol show partition main") == 1


def test_a_second_time_changes_nothing() -> None:
    once = update(OWN, INFO).text
    assert update(once, INFO) == (once, [])


def test_memory_alone() -> None:
    new = update(OWN, INFO._replace(nodes=[KIND._replace(memory=16000)]))
    assert "  memory: 16000M\n" in new.text and '  source: "lscpu; sinfo"\n' in new.text
    assert '["0-5", "6-11"]   # of lscpu' in new.text


def test_other_cores_and_devices() -> None:
    """The node is written anew, with what a person knew of it as far as that can still be."""
    new = update(OWN, INFO._replace(nodes=[KIND._replace(cores=8, devices=2)]))
    node = load(new.text).node
    assert node is not None
    assert (node.sockets, node.devices) == (["0-3", "4-7"], [1, 1])
    assert (node.reserved_cores, node.ranks_per_device) == ("0", 2)
    assert "# ? Are the cores numbered like this" in new.text, "what is not known now is asked"
    assert "# whose it is" in new.text and "ask Ann" in new.text


def test_a_host_that_shrank() -> None:
    info = INFO._replace(nodes=[KIND, KIND._replace(cores=4, devices=2, nodes=1)])
    new = update(OWN, info)
    (other,) = load(new.text).other_nodes or []
    assert (other.cores, other.devices, other.device_type) == (4, 2, "a100")
    assert Comparison(load(new.text), info).differences == []
    back = update(new.text, INFO._replace(nodes=[KIND]))
    assert load(back.text).other_nodes == [] and "other_nodes: []" in back.text


def test_the_rest() -> None:
    info = INFO._replace(default_queue="slow", array_count=7)
    new = update(OWN, info)
    assert "\ndefault_queue: slow\n" in new.text or '\ndefault_queue: "slow"\n' in new.text
    site = load(new.text)
    assert site.array is not None and (site.array.max_count, site.array.source) == (7, "scontrol")
    text = OWN + "qos:\n  normal: {source: Ann, date: 2026-05-01}\n"
    assert load(update(text, INFO).text).qos["normal"].max_jobs == 5


def test_several_ranges_are_for_a_person() -> None:
    text = OWN.replace(
        "[{max_nodes: 4, max_walltime: 24h}]", "[{max_nodes: 4}, {max_nodes: 2, max_walltime: 48h}]"
    )
    new = update(text, INFO)
    assert [one.partition(":")[0] for one in new.left] == [
        "queues.main.max_nodes",
        "queues.main.max_walltime",
    ]
    assert "[{max_nodes: 4}, {max_nodes: 2, max_walltime: 48h}]" in new.text


class TestOfCastoff:
    """A profile that comes with castoff is changed by one that extends it."""

    @staticmethod
    def load(text: str) -> Site:
        path = Path("/nowhere/castoff/sites/polaris.yaml")
        return Site.load("polaris", search=Search({"XDG_CONFIG_HOME": "/nowhere"}, None, draft=(path, text)))

    def test_polaris(self) -> None:
        info = pbs.parse({path.stem: path.read_text() for path in (ANSWERS / "pbs").glob("*.txt")})
        queues = {**info.queues, "debug": QueueInfo(1, 4, 300, 3600, max_jobs=1)}
        del queues["demand"]
        info = info._replace(queues=queues, nodes=[NodeKind(128, 8, memory=10)])
        site = Site.load("polaris", search=Search({}, None))
        draft = Draft("polaris", "pbs", "PBS", "2026-11-26", "login1", queue="prod")
        start = "extends: polaris\n"
        new = updated(start, site, info, Comparison(site, info), draft, self.load)
        assert new.left == [] and new.text.startswith(start)
        changed = self.load(new.text)
        assert changed.queues["debug"].ranges[0].max_nodes == 4
        assert "demand" not in changed.queues and "demand: null" in new.text
        assert changed.queues["capacity"] == site.queues["capacity"]
        assert changed.node is not None and changed.node.memory == "10M"
        assert changed.node.device_cores == []
        assert [one.field for one in Comparison(changed, info).differences] == ["node"]


def test_what_a_program_cannot_change_is_said() -> None:
    text = OWN.replace("  gone: {source: Ann, date: 2026-05-01}\n", "  gone: *one\n").replace(
        "  main:", "  main: &one"
    )
    info = INFO._replace(queues={**INFO.queues, "gone": QueueInfo(max_nodes=4, max_walltime=86400)})
    new = update(text, info)
    assert any(one.startswith("queues.main.max_nodes: ") and "by hand" in one for one in new.left)
    assert load(new.text).queues["main"].ranges[0].max_nodes == 4


def test_a_new_profile_has_nothing_to_update() -> None:
    text = profile_text(Draft("here", "slurm", "Slurm", "2026-11-26", "login1"), INFO)
    assert update(text, INFO) == (text, [])


@pytest.mark.parametrize("change", [{"memory": 8000}, {"devices": 2}, {"cores": 6}])
def test_a_new_profile_follows_its_machine(change: dict[str, Any]) -> None:
    text = profile_text(Draft("here", "slurm", "Slurm", "2026-11-26", "login1"), INFO)
    info = INFO._replace(nodes=[KIND._replace(**change)])
    assert Comparison(load(update(text, info).text), info).differences == []


def test_a_new_profile_gets_new_queues() -> None:
    """Its queues are the scheduler's list; a profile that a person wrote lists what they wanted."""
    text = profile_text(Draft("here", "slurm", "Slurm", "2026-11-26", "login1"), INFO)
    added = {"fast": QueueInfo(max_walltime=3600), "R1": QueueInfo(passing=True)}
    info = INFO._replace(queues={**INFO.queues, **added})
    found = load(update(text, info).text).queues
    assert [*found] == ["main", "slow", "fast"] and found["fast"].ranges[0].max_walltime == "1h"
    own = text.replace("source: scontrol show partition slow", "source: Ann")
    assert own != text and update(own, info).text == own


def test_a_limit_that_is_lifted() -> None:
    """What the scheduler alone had said goes; a limit that a person knows stays."""
    text = profile_text(Draft("here", "slurm", "Slurm", "2026-11-26", "login1"), INFO)
    info = INFO._replace(
        queues={"main": QueueInfo(max_nodes=8), "slow": QueueInfo()}, qos={"normal": QueueInfo()}
    )
    new = load(update(text, info).text)
    assert [(one.max_nodes, one.max_walltime) for one in new.queues["main"].ranges] == [(8, None)]
    assert (new.queues["slow"].ranges, new.qos["normal"].max_jobs) == ([], None)
    assert Comparison(new, info).differences == []
    own = text.replace("source: scontrol show partition main", "source: Ann")
    assert load(update(own, info).text).queues["main"].ranges[0].max_walltime == "24h"
