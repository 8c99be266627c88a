"""A machine's profile from what its scheduler says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Search, Site
from castoff.launcher.planning.planner import decide
from castoff.launcher.planning.render import rendered
from castoff.launcher.schedulers.base import QueuedScheduler
from castoff.launcher.schedulers.choice import check_profile
from castoff.launcher.schedulers.flux import resources as flux
from castoff.launcher.schedulers.machine_info import MachineInfo, NodeKind, QueueInfo, User
from castoff.launcher.schedulers.pbs import queues_and_nodes as pbs
from castoff.launcher.schedulers.slurm import partitions as slurm
from castoff.launcher.siting.check import Comparison
from castoff.launcher.siting.draft import Draft, device_variable, profile_text
from castoff.launcher.siting.entries import count_questions

ANSWERS = Path(__file__).parents[1] / "answers"
TITLES = {"slurm": "Slurm", "pbs": "PBS", "flux": "Flux"}


def answers(module: Any, folder: str) -> MachineInfo:
    found: MachineInfo = module.parse(
        {path.stem: path.read_text() for path in (ANSWERS / folder).glob("*.txt")}
    )
    return found


LAB, PLAIN = answers(slurm, "slurm-accounting"), answers(slurm, "slurm-plain")
POLARIS, FLUX = answers(pbs, "pbs"), answers(flux, "flux")
GPUS = NodeKind(64, 4, "a100", 500_000, sockets=2, device_sockets=(0, 1))


def text_of(info: MachineInfo, scheduler: str = "slurm", **more: Any) -> str:
    draft = Draft("here", scheduler, TITLES[scheduler], "2026-11-26", "login1", **more)
    return profile_text(draft, info)


def site_of(info: MachineInfo, scheduler: str = "slurm", **more: Any) -> Site:
    """The profile, read as one of a user's."""
    path = Path("/nowhere/castoff/sites/here.yaml")
    search = Search({"XDG_CONFIG_HOME": "/nowhere"}, None, draft=(path, text_of(info, scheduler, **more)))
    site = Site.load("here", search=search)
    check_profile(site)
    return site


MACHINES = [(LAB, "slurm"), (PLAIN, "slurm"), (POLARIS, "pbs"), (FLUX, "flux"), (MachineInfo(), "slurm")]


@pytest.mark.parametrize(("info", "scheduler"), MACHINES)
@pytest.mark.parametrize("shared", [False, True])
def test_it_is_right_and_a_job_renders(info: MachineInfo, scheduler: str, shared: bool) -> None:
    site = site_of(info, scheduler, shared=shared)
    if info.queues:
        assert Comparison(site, info).differences == []
    nodes = (
        site.queues[site.default_queue].ranges[0].min_nodes
        if scheduler == "pbs" and site.default_queue
        else 1
    )
    spec = JobSpec.of({"command": ["python", "train.py"], "nodes": nodes, "walltime": "30m"})
    plan, own = decide(spec, site)
    assert isinstance(own, QueuedScheduler)
    assert f"\n{own.directive_mark}" in rendered(plan, own).text


def test_every_line_has_its_source_and_is_not_too_long() -> None:
    text = text_of(LAB)
    assert text.count("source: ") == text.count("date: 2026-11-26") > 5
    assert max(map(len, text.splitlines())) <= 110


def test_whether_there_are_queues_beside_those_that_are_listed() -> None:
    """At Slurm none; but a hidden one may be somebody's, and PBS makes queues of reservations."""
    assert not site_of(PLAIN).other_queues
    assert site_of(LAB).other_queues and site_of(POLARIS, "pbs").other_queues


class TestSlurm:
    def test_limits_nodes_and_accounts(self) -> None:
        site = site_of(LAB)
        assert site.node is not None
        assert (site.node.sockets, site.node.cpus_per_core, site.node.memory) == (["0-63"], 2, "20000M")
        assert (site.node.devices, site.node.device_variable) == ([4], "CUDA_VISIBLE_DEVICES")
        assert [(one.cores, one.devices, one.queues) for one in site.other_nodes or []] == [
            (128, 0, ["debug", "long", "quiet"])
        ]
        assert list(site.queues) == ["debug", "gpu", "long"], "none that is hidden"
        assert site.queues["gpu"].ranges[0].max_walltime == "48h"
        assert list(site.qos) == ["normal", "gpu_regular", "gpu_debug"], "those of the user's accounts"
        assert (site.default_queue, site.default_qos, site.defaults.account) == ("debug", "normal", "phys")
        assert site.array is not None and site.array.max_count == 65000

    def test_nodes_of_a_queue(self) -> None:
        site = site_of(LAB, queue="long")
        assert site.node is not None and site.node.sockets == ["0-63", "64-127"]
        assert (site.default_queue, site.defaults.queue) == ("debug", "long"), (
            "what jobs get that say nothing"
        )
        assert Comparison(site, LAB).differences == []

    def test_what_others_use_names_no_account(self) -> None:
        assert site_of(LAB, shared=True).defaults.account is None
        assert "# defaults: {account: phys}" in text_of(LAB, shared=True)

    def test_what_it_was_not_told_is_asked(self) -> None:
        text = text_of(PLAIN)
        assert "# ? Which cores belong to which socket? Slurm does not know: it counts 12 cores" in text
        assert "memory" not in text, "1 MB is what slurm.conf says that says nothing"

    def test_what_it_did_not_answer_is_asked(self) -> None:
        why = "`sacctmgr show qos`: sacctmgr failed with exit code 1: no accounting"
        text = text_of(LAB._replace(qos=None, user=None, unanswered=(("qos", why),)))
        assert f"# ? Nothing is known about qos, because the query failed: {why}"[:90] in text
        assert "qos:\n" not in text and "account:" not in text
        assert "# ? Nothing" not in text_of(PLAIN._replace(unanswered=(("qos", why),))), "it has none"

    def test_devices_of_several_types(self) -> None:
        info = LAB._replace(nodes=[GPUS, GPUS._replace(device_type="v100")])
        site = site_of(info)
        assert (site.gpu_request, site.defaults.device_type) == ("gpus-per-node", "a100")
        assert site_of(info, gpu_type="v100").defaults.device_type == "v100"
        assert "# ? How many of its 4 devices belong to each socket?" in text_of(info)

    def test_devices_of_one_socket(self) -> None:
        info = LAB._replace(nodes=[GPUS._replace(device_sockets=(1,))])
        node = site_of(info).node
        assert node is not None and node.devices == [0, 4]
        assert "How many of its" not in text_of(info)

    def test_devices_of_an_unknown_kind(self) -> None:
        """Not written, as castoff would set a variable that nobody reads."""
        info = LAB._replace(nodes=[GPUS._replace(device_type=None)])
        node = site_of(info).node
        assert node is not None and node.devices == []
        assert "#     device_variable: CUDA_VISIBLE_DEVICES" in text_of(info)

    def test_cores_that_no_job_gets(self) -> None:
        text = text_of(LAB._replace(nodes=[GPUS._replace(reserved=8)]))
        assert "# ? Which 8 of the cores are reserved for the system?" in text

    def test_nodes_that_are_whole(self) -> None:
        node = site_of(LAB._replace(nodes=[GPUS._replace(whole=True)])).node
        assert node is not None and node.exclusive

    def test_who_may_use_a_queue(self) -> None:
        queues = {"q": QueueInfo(notes=("for the accounts a, b alone",))}
        assert "  q:  # for the accounts a, b alone\n" in text_of(LAB._replace(queues=queues))

    def test_another_login_shell(self) -> None:
        assert "your login shell is /bin/tcsh" in text_of(LAB, login_shell="/bin/tcsh")
        assert "login shell" not in text_of(LAB, login_shell="/usr/bin/bash")


class TestPolaris:
    """The proposal beside the built-in profile, which people have written."""

    def test_it_says_the_same(self) -> None:
        mine, theirs = site_of(POLARIS, "pbs"), Site.load("polaris", search=Search({}, None))
        assert mine.default_queue == theirs.default_queue
        assert mine.queues.keys() == theirs.queues.keys()
        for name, queue in mine.queues.items():
            assert queue.ranges == theirs.queues[name].ranges, name
            assert queue.submit_to == theirs.queues[name].submit_to, name
            if name != "debug-scaling":  # the answers have it otherwise on purpose
                assert queue.max_jobs == theirs.queues[name].max_jobs, name

    def test_file_systems_are_the_servers(self) -> None:
        values = site_of(POLARIS, "pbs").directive_values["filesystems"]
        assert (values.among, values.separator) == (["home", "eagle"], ":")
        assert values.source == "qstat -Bf, valid_filesystems"

    def test_what_pbs_does_not_say_is_asked(self) -> None:
        text = text_of(POLARIS, "pbs")
        for question in ("Which physical cores", "What limits a process", "Which account", "Which mpiexec"):
            assert f"# ? {question}" in text
        assert count_questions(text) == 5
        node = site_of(POLARIS, "pbs").node
        assert node is not None and (node.sockets, node.devices) == ([], []), "nothing is guessed"

    def test_reservations_are_left_out(self) -> None:
        left_out = "# Left out, because hidden, closed or for a reservation: R640002, old."
        assert left_out in text_of(POLARIS, "pbs")


@pytest.mark.parametrize(
    ("kind", "variable"),
    [
        *(
            (one, "CUDA_VISIBLE_DEVICES")
            for one in ("a100", "A100-SXM4-80GB", "tesla_v100", "rtx_6000", "l40s", "H100")
        ),
        *((one, "CUDA_VISIBLE_DEVICES") for one in ("nvidia_a100_3g.20gb", "gh200", "t4", "a10")),
        *((one, "ROCR_VISIBLE_DEVICES") for one in ("mi250x", "MI300A", "gfx90a")),
        *((one, "ZE_AFFINITY_MASK") for one in ("pvc", "max_1550", "intel_max")),
        *((one, None) for one in (None, "gpu", "a1", "big", "a1000x", "b60", "fpga")),
    ],
)
def test_whose_device_it_is(kind: str | None, variable: str | None) -> None:
    assert device_variable(kind) == variable


def test_words_of_a_scheduler_are_only_words() -> None:
    """Whatever they are: a name that is YAML, a comment, a control character."""
    odd = ["null", "1:30", "a: b", "- c", "# no", "yes", "ü", "x y", '"']
    info = LAB._replace(
        name="a: b # c",
        queues={name: QueueInfo(max_nodes=3, notes=(f"for {name}\x07\nx",)) for name in odd},
        default_queue="null",
        nodes=[GPUS._replace(features=("a\nb", "# c"), queues=("a: b",))],
        user=User(("null",), "null", ("yes",)),
        qos={"yes": QueueInfo()},
        questions=(("What\nis: # it?", ("a: \x1b",)),),
        unanswered=(("qos", "no\nsuch: # thing\x1b[31m"),),
    )
    site = site_of(info)
    assert list(site.queues) == odd
    assert (site.default_queue, site.defaults.account, list(site.qos)) == ("null", "null", ["yes"])
    assert "\x1b" not in text_of(info) and "\x07" not in text_of(info)


def test_long_lists_and_lists_of_sections() -> None:
    """What does not fit on a line is a list of one item on each."""
    targets = {f"q{size}": QueueInfo(size, 2 * size, 300, 3600 * size) for size in (1, 10, 100)}
    queues = {"route": QueueInfo(routes_to=tuple(targets)), **targets}
    text = text_of(LAB._replace(queues=queues, nodes=[GPUS, GPUS._replace(cores=8)]))
    assert "    ranges:  # of the queues behind it\n      - {max_nodes: 2, min_walltime: 5m" in text
    assert "other_nodes:\n  - cores: 8  # 1 like this\n    devices: 4\n" in text
