"""What a node says of itself, and a profile with that in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.config.site import Search, Site
from castoff.launcher.schedulers.machine_info import MachineInfo, NodeKind
from castoff.launcher.schedulers.pbs.scheduler import SCHEDULER as PBS
from castoff.launcher.siting.draft import Draft, profile_text
from castoff.launcher.siting.entries import count_questions
from castoff.launcher.siting.probe import merged, parse, without_questions
from castoff.launcher.siting.update import Updated

PATH = Path("/nowhere/castoff/sites/here.yaml")


def cpus(sockets: int, cores: int, numas: int = 1, *, interleaved: bool = False) -> str:
    """lscpu -p of a machine whose hardware threads come behind all cores."""
    total = sockets * cores
    rows = []
    for cpu in range(2 * total):
        core = cpu % total
        socket = core % sockets if interleaved else core // cores
        rows.append(f"{cpu},{core},{socket},{core * numas // total}")
    return "\n".join(rows)


def devices(vendor: str, near: list[str], parts: int = 1) -> str:
    return "\n".join(f"0000:{0x10 + at:02x}:00.0 {vendor} {parts} {one}" for at, one in enumerate(near))


# One socket of four NUMA domains; a node's first cores are beside its last device (ALCF's pages).
POLARIS = f"""\
== host
x3005c0s13b0n0
== cpus
{cpus(1, 32, 4)}
== memory
MemTotal:       527672488 kB
== devices
0000:07:00.0 0x10de 1 24-31,56-63
0000:46:00.0 0x10de 1 16-23,48-55
0000:85:00.0 0x10de 1 8-15,40-47
0000:c7:00.0 0x10de 1 0-7,32-39
== nvidia
00000000:07:00.0, NVIDIA A100-SXM4-40GB
00000000:46:00.0, NVIDIA A100-SXM4-40GB
00000000:85:00.0, NVIDIA A100-SXM4-40GB
00000000:C7:00.0, NVIDIA A100-SXM4-40GB
== kfd
== disks
tmpfs tmpfs 263836240 /tmp
/dev/md127 xfs 3000000000 /local/scratch
home.example:/home nfs4 900000000000 /scratch/local
== modules
/soft/modulefiles:
conda/2025-09-25
cudatoolkit-standalone/12.9
nano/8
== mpiexec
/opt/cray/pals/1.4/bin/mpiexec
mpiexec version 1.4.0 (pals)
== remote
/opt/pbs/bin/pbs_tmrsh
== reach x3005c0s13b1n0
ssh
remote
== end
"""


def site_of(text: str) -> Site:
    return Site.load("here", search=Search({"XDG_CONFIG_HOME": "/nowhere"}, None, draft=(PATH, text)))


def merge(text: str, said: str) -> Updated:
    new = merged(text, site_of(text), parse(said), "2026-11-26", PBS.remote_setup)
    site_of(new.text)
    return new


BARE = "description: d\nextends: pbs\n"


class TestNodes:
    def test_polaris(self) -> None:
        """As the built-in profile has it from ALCF's pages."""
        new = merge(BARE, POLARIS)
        mine, theirs = site_of(new.text), Site.load("polaris", search=Search({}, None))
        assert mine.node is not None and theirs.node is not None
        for field in ("sockets", "devices", "device_cores", "device_variable"):
            assert getattr(mine.node, field) == getattr(theirs.node, field), field
        assert (mine.local_storage, mine.launcher) == ("/local/scratch", "pals")
        assert (mine.node.source, mine.node.memory) == ("castoff sites probe", "515305M")
        assert new.left == []
        assert (
            "#   conda/2025-09-25\n#   cudatoolkit-standalone/12.9\n" in new.text and "nano" not in new.text
        )

    def test_aurora(self) -> None:
        """Tiles are devices, and belong to their card's socket."""
        near = ["0-51,104-155"] * 3 + ["52-103,156-207"] * 3
        said = f"== host\nx1\n== cpus\n{cpus(2, 52)}\n== devices\n{devices('0x8086', near, 2)}\n== end\n"
        node = site_of(merge(BARE, said).text).node
        theirs = Site.load("aurora", search=Search({}, None)).node
        assert node is not None and theirs is not None
        assert (node.sockets, node.devices, node.device_variable) == (
            *(theirs.sockets, theirs.devices, theirs.device_variable),
        )
        assert node.device_cores == [], "all cores of a socket are alike"

    def test_frontier(self) -> None:
        """AMD's numbers follow the kernel's, and not the addresses on the bus."""
        theirs = Site.load("frontier", search=Search({}, None)).node
        assert theirs is not None
        addresses = ["c1", "c6", "c9", "ce", "d1", "d6", "d9", "de"]
        near = dict(
            zip(addresses, ["48-55", "56-63", "16-23", "24-31", "0-7", "8-15", "32-39", "40-47"], strict=True)
        )
        numbers = ["c1", "c6", "c9", "ce", "d9", "de", "d1", "d6"]
        bus = "\n".join(f"0000:{at}:00.0 0x1002 1 {near[at]}" for at in addresses)
        kfd = "\n".join(f"/sys/x/{at + 4}/properties 0 {int(one, 16) << 8}" for at, one in enumerate(numbers))
        said = f"== cpus\n{cpus(1, 64, 4)}\n== devices\n{bus}\n== kfd\n{kfd}\n"
        node = site_of(merge(BARE, said).text).node
        assert node is not None and node.device_variable == theirs.device_variable
        assert node.device_cores == [near[one] for one in numbers]

    def test_cores_that_alternate_between_sockets(self) -> None:
        """As the BIOS of some makers numbers them; a scheduler does not tell."""
        info = MachineInfo(nodes=[NodeKind(8, 2, "a100", sockets=2)], sources={"nodes": "sinfo"})
        text = profile_text(Draft("here", "slurm", "Slurm", "2026-11-26", "login1"), info)
        assert count_questions(text) == 2
        beside = devices("0x10de", ["0,2,4,6", "1,3,5,7"])
        said = f"== cpus\n{cpus(2, 4, interleaved=True)}\n== devices\n{beside}\n"
        new = merge(text, said)
        node = site_of(new.text).node
        assert node is not None and node.sockets == ["0,2,4,6", "1,3,5,7"]
        assert (node.devices, node.source) == ([1, 1], "sinfo; castoff sites probe")
        assert count_questions(new.text) == 0, "they are answered"

    def test_devices_that_a_job_may_not_see_are_on_the_bus(self) -> None:
        """nvidia-smi shows those of the job; then they are numbered as their addresses are."""
        said = POLARIS.replace("00000000:46:00.0, NVIDIA A100-SXM4-40GB\n", "")
        node = site_of(merge(BARE, said).text).node
        assert node is not None and node.device_cores == ["24-31", "16-23", "8-15", "0-7"]

    def test_what_is_not_known_stays_a_question(self) -> None:
        info = MachineInfo(nodes=[NodeKind(4, 2, sockets=1)], sources={"nodes": "sinfo"})
        text = profile_text(Draft("here", "slurm", "Slurm", "2026-11-26", "login1"), info)
        new = merge(text, f"== cpus\n{cpus(1, 4)}\n== end\n")
        assert "# ? What limits a process" in new.text and "# ? Are the cores" not in new.text

    def test_a_node_of_another_kind(self) -> None:
        """Nothing of it is the profile's."""
        text = BARE + 'node: {sockets: ["0-7"], source: s, date: 2026-01-01}\n'
        new = merge(text, POLARIS.replace("== modules", "== none"))
        assert new.left and new.left[0].startswith(
            "node: x3005c0s13b0n0 has 32 cores, and the profile's nodes have 8"
        )
        assert merged(BARE, site_of(BARE), parse(POLARIS), "2026-11-26", (), [64]).left == [], "threads"
        assert "sockets" not in merged(BARE, site_of(BARE), parse(POLARIS), "2026-11-26", (), [48]).text
        assert 'node: {sockets: ["0-7"], source: s, date: 2026-01-01}\n' in new.text

    def test_what_is_inherited_is_not_repeated(self) -> None:
        """A profile that came with castoff, which knows it."""
        path = Path("/nowhere/castoff/sites/polaris.yaml")
        text = "extends: polaris\n"
        search = Search({"XDG_CONFIG_HOME": "/nowhere"}, None, draft=(path, text))
        site = Site.load("polaris", search=search)
        new = merged(
            text, site, parse(POLARIS.replace("== modules", "== none")), "2026-11-26", PBS.remote_setup
        )
        assert [
            line for line in new.text.splitlines() if "sockets:" in line or "device" in line.split(":")[0]
        ] == []
        assert "memory: 515305M" in new.text and new.left == []

    def test_other_sockets_than_the_scheduler_says(self) -> None:
        """Devices that nobody found on the bus stay: with one socket they are its own, else it is said."""
        text = BARE + "node:\n  devices: [2, 2]\n  device_variable: CUDA_VISIBLE_DEVICES\n  source: s\n"
        text += "  date: 2026-01-01\n"
        node = site_of(merge(text, f"== cpus\n{cpus(1, 8)}\n").text).node
        assert node is not None and (node.sockets, node.devices) == (["0-7"], [4])
        new = merge(text, f"== cpus\n{cpus(4, 2)}\n")
        assert new.text == text and "has 4 sockets, and the profile has devices for 2" in new.left[0]

    def test_a_small_device_for_a_screen(self) -> None:
        said = f"== cpus\n{cpus(1, 8)}\n== devices\n0000:01:00.0 0x8086 1 0-15\n" + "".join(
            f"0000:{at}:00.0 0x10de 1 0-15\n" for at in ("41", "81")
        )
        node = site_of(merge(BARE, said).text).node
        assert node is not None and (node.devices, node.device_variable) == ([2], "CUDA_VISIBLE_DEVICES")


class TestReachingHosts:
    HYDRA = POLARIS.replace("mpiexec version 1.4.0 (pals)", "HYDRA build details:")

    def test_ssh_is_closed(self) -> None:
        """mpiexec gets PBS's own way, and no question is left about it."""
        info = MachineInfo(
            nodes=[NodeKind(64)],
            counts_threads=True,
            sources={"nodes": "pbsnodes"},
            questions=(("Which mpiexec?", ()),),
        )
        text = profile_text(Draft("here", "pbs", "PBS", "2026-11-26", "login1"), info)
        new = merge(text, self.HYDRA.replace("ssh\n", ""))
        assert new.left == [] and "Which mpiexec" not in new.text
        (setup,) = site_of(new.text).setup
        assert (
            '\'exec /opt/pbs/bin/pbs_tmrsh "$host"' in setup and "HYDRA_LAUNCHER_EXEC=$castoff_reach" in setup
        )

    def test_ssh_is_open(self) -> None:
        new = merge(BARE, self.HYDRA)
        assert site_of(new.text).setup == [] and new.left == []

    def test_nothing_leads_there(self) -> None:
        (what,) = merge(BARE, self.HYDRA.replace("ssh\nremote\n", "")).left
        assert "ssh from x3005c0s13b0n0 does not reach x3005c0s13b1n0" in what

    def test_lines_that_a_person_wrote_stay(self) -> None:
        text = BARE + "setup: [module load mpich]\n"
        new = merge(text, self.HYDRA.replace("ssh\n", ""))
        assert "setup: [module load mpich]\n" in new.text and "`setup`" in new.left[0]

    def test_pals_needs_no_ssh(self) -> None:
        assert merge(BARE, POLARIS.replace("ssh\n", "")).left == []

    @pytest.mark.parametrize(
        ("says", "launcher"),
        [
            ("HYDRA build details:\n    Version: 4.1", "hydra"),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.18", "intelmpi"),
            ("mpiexec (OpenRTE) 4.1.4", "openmpi"),
            ("mpiexec (Open MPI) 5.0.6", "openmpi"),
            ("mpiexec: unknown option", "hydra"),
        ],
    )
    def test_flavours(self, says: str, launcher: str) -> None:
        said = POLARIS.replace("/opt/cray/pals/1.4/bin/mpiexec\nmpiexec version 1.4.0 (pals)", says)
        assert site_of(merge(BARE, said).text).launcher == launcher

    def test_srun_stays(self) -> None:
        text = "description: d\nextends: slurm\n"
        assert site_of(merge(text, self.HYDRA).text).launcher == "srun"


def test_a_second_time_changes_nothing() -> None:
    once = merge(BARE, POLARIS).text
    assert merge(once, POLARIS) == (once, [])


def test_a_node_that_says_nothing() -> None:
    new = merge(BARE, "")
    assert (new.text, new.left) == (BARE, ["node: lscpu on a node reports nothing"])


@given(st.lists(st.sampled_from(POLARIS.splitlines()), max_size=30), st.text(max_size=20))
def test_whatever_a_node_says(lines: list[str], odd: str) -> None:
    """It is written where it is known, and the profile stays one."""
    merge(BARE, "\n".join([*lines, odd]))


def test_answered_questions() -> None:
    text = "a: 1\n  # ? How many cores?\n  #   And which?\n  #     x: 1\n  # mine\n"
    text += "# ? Which devices have cores?\nb: 2\n"
    assert (
        without_questions(text, "cores", but="devices")
        == "a: 1\n  # mine\n# ? Which devices have cores?\nb: 2\n"
    )
