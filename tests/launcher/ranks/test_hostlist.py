"""Host lists: Slurm's short form against python-hostlist, and the nodefiles of PBS."""

from __future__ import annotations

import subprocess
from pathlib import Path

import hostlist
import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.errors import CastoffError
from castoff.launcher.ranks.hostlist import MAX_HOSTS, HostlistError, expand, read_nodefile, short_name
from tests.launcher.scripts.machine import part


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n1,n3,n2", ["n1", "n3", "n2"]),
        ("n[3,1]", ["n3", "n1"]),
        ("n[1,1],n1", ["n1", "n1", "n1"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[99-101]", ["n99", "n100", "n101"]),
        ("n[1-03]", ["n1", "n2", "n3"]),
        ("n[01-3]", ["n01", "n02", "n03"]),
        ("[1-2]", ["1", "2"]),
        ("n[1-2][3-4]", ["n13", "n14", "n23", "n24"]),
        ("n[1-2] n3", ["n1", "n2", "n3"]),
        ("n1,,n2,", ["n1", "n2"]),
        ("a-[0-1].x.org,b", ["a-0.x.org", "a-1.x.org", "b"]),
        (
            "r[1-2]n[01-03]x",
            ["r1n01x", "r1n02x", "r1n03x", "r2n01x", "r2n02x", "r2n03x"],
        ),
    ],
)
def test_expand(text: str, hosts: list[str]) -> None:
    # All but the names with text after a bracket are what scontrol 22.05.8 prints.
    assert expand(text) == hosts


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        ("n[1", "'[' without ']'"),
        ("a,n[1-2]m[3", "'n[1-2]m[3'"),
        ("n1]", "']' without '['"),
        ("n[[1]]", "'n[['"),
        ("n[]", "''"),
        ("n[1,]", "''"),
        ("n[a]", "'a'"),
        ("n[-1]", "'-1'"),
        ("n[1-]", "'1-'"),
        ("n[1-2-3]", "'1-2-3'"),
        ("n[1-2:1]", "'1-2:1'"),
        ("n[ 1-2]", "' 1-2'"),
        ("n[²]", "'²'"),
        ("n[3-1]", "Write 1-3"),
        ("n[1-1000001]", "1000001 hosts"),
        ("n[1-1000],r[1-1000]n[1-1000]", "'r[1-1000]n[1-1000]'"),
        (f"n[1-{'9' * 5000}]", "neither a number"),
    ],
)
def test_expand_names_the_piece_at_fault(text: str, piece: str) -> None:
    with pytest.raises(HostlistError) as error:
        expand(text)
    assert piece in str(error.value)
    assert isinstance(error.value, CastoffError)
    assert len(str(error.value)) < 400


def test_expand_reaches_its_limit() -> None:
    assert len(expand(f"n[1-{MAX_HOSTS}]")) == MAX_HOSTS


def ranges() -> st.SearchStrategy[str]:
    """A number or a range of up to 30, with zeros in front of some."""

    def text(first: int, length: int, width: int) -> str:
        start = str(first).zfill(width)
        return start if length == 0 else f"{start}-{str(first + length).zfill(width)}"

    return st.builds(text, st.integers(0, 1200), st.integers(0, 30), st.integers(0, 5))


brackets = st.lists(ranges(), min_size=1, max_size=3).map(lambda parts: f"[{','.join(parts)}]")
letters = st.text("abxn-.", min_size=1, max_size=4)
names = st.builds(
    lambda head, pairs: head + "".join(bracket + text for bracket, text in pairs),
    letters,
    st.lists(st.tuples(brackets, letters | st.just("")), max_size=2),
)


@given(st.lists(names, min_size=1, max_size=4).map(",".join))
def test_expand_agrees_with_python_hostlist(text: str) -> None:
    assert expand(text) == hostlist.expand_hostlist(text, allow_duplicates=True)


@given(st.lists(st.builds("{}{}".format, st.sampled_from("anz"), st.integers(0, 99)), min_size=1))
def test_expand_undoes_python_hostlist(hosts: list[str]) -> None:
    assert sorted(expand(hostlist.collect_hostlist(hosts))) == sorted(set(hosts))


@given(st.text("n1[]-, ²x", max_size=12))
def test_expand_ends_in_a_list_or_a_clear_error(text: str) -> None:
    try:
        hosts = expand(text)
    except HostlistError:
        return
    assert all(host and "[" not in host and "]" not in host for host in hosts)


def test_nodefile_lists_each_host_once_in_order() -> None:
    name = "x4114c1s7b0n0.hostmgmt2.cm.aurora.alcf.anl.gov"
    text = f"{name}\n{name}\nx4000c0s0b0n0\r\n\n  {name}  \nx4000c0s0b0n0"
    assert read_nodefile(text) == [name, "x4000c0s0b0n0"]
    assert read_nodefile("") == []


NODEFILES = [
    ("n1\n\nn2\n \n", ["n1", "n2"]),
    ("n1\nn1.cluster\nn2.cluster\nn2\n", ["n1", "n2.cluster"]),
    ("n1.rack.site\nn1.rack\nn1\nn1.rack.site\n", ["n1.rack.site"]),
    ("n1.a\nn1.b\nn11\nn1.a\n", ["n1.a", "n1.b", "n11"]),
    ("10.0.0.1\n10.0.0.2\n10.0.0.1\n10\n", ["10.0.0.1", "10.0.0.2", "10"]),
    ("fe80::1\nfe80::1.2.3.4\n\nfe80::1\n", ["fe80::1", "fe80::1.2.3.4"]),
]


@pytest.mark.parametrize(("text", "hosts"), NODEFILES)
def test_nodefile_counts_a_host_once_whatever_it_is_called(text: str, hosts: list[str]) -> None:
    assert read_nodefile(text) == hosts


def test_scripts_read_nodefiles_as_ranks_do(tmp_path: Path) -> None:
    script = part("schedulers/pbs")
    for number, (text, _) in enumerate(NODEFILES):
        (tmp_path / str(number)).write_text(text)
    script += "\nfor PBS_NODEFILE; do castoff_scheduler_hosts; echo; done"
    files = [str(tmp_path / str(number)) for number in range(len(NODEFILES))]
    found = subprocess.run(["bash", "-c", script, "-", *files], capture_output=True, text=True, check=True)
    assert found.stdout.split("\n\n")[:-1] == ["\n".join(hosts) for _, hosts in NODEFILES]


@pytest.mark.parametrize(
    ("host", "short"),
    [
        ("x4114c1s7b0n0.hostmgmt2.cm.aurora.alcf.anl.gov", "x4114c1s7b0n0"),
        ("n1", "n1"),
        ("10.77.0.11", "10.77.0.11"),
        ("10.example.org", "10"),
        ("1.2.3.example", "1"),
        ("fe80::1", "fe80::1"),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.1"),
    ],
)
def test_short_name_leaves_addresses_whole(host: str, short: str) -> None:
    assert short_name(host) == short
