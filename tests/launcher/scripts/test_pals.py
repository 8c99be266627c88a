"""Every command line for PALS, against PALS's documented one: no option of another mpiexec slips in."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from castoff import JobSpec, Site, plan, render
from castoff.launcher.runs.script import head_of

from . import pals
from .conftest import Benches
from .examples import EXAMPLES, NEEDED

UNDER_PALS = [
    name
    for name, example in EXAMPLES.items()
    if example.site in ("aurora", "polaris") and "driver" not in name  # which mpiexec does not start
]


def started(script: str) -> list[list[str]]:
    """The words after mpiexec, of each such command in a script."""
    head = head_of(script).replace("\\\n", " ")
    return [
        shlex.split(line)
        for line in re.findall(r"^castoff_(?:stage|start) mpiexec (.*)$", head, re.MULTILINE)
    ]


def test_golden_scripts() -> None:
    for name in UNDER_PALS:
        decided = EXAMPLES[name].plan()
        assert decided.launcher == "pals", name
        *before, command = started(render(decided))
        assert len(before) == bool(decided.stage), name
        for words in before:  # what stages files; the machinery adds the program
            options, _ = pals.parse([*words, "stage.sh"])
            assert options["-n"] == str(decided.nodes), name
        options, program = pals.parse(command)
        assert program[0] == "$castoff_rank", name
        assert "--line-buffer" in options, name
        assert options["-n"] == str(decided.nodes if decided.torchrun else decided.ranks), name


def test_the_goldens_are_many() -> None:
    assert len(UNDER_PALS) > 25
    assert {name.partition("-")[0] for name in UNDER_PALS} == {"aurora", "polaris"}


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("-n 2 --bind-to none prog", "--bind-to is not an option of PALS"),
        ("-n 2 -f hosts prog", "-f is not an option of PALS"),
        ("-n 2 -x PATH prog", "-x is not an option of PALS"),
        ("-n", "-n lacks its value"),
        ("-n prog", "-n cannot be 'prog'"),
        ("-n 2 --ppn --line-buffer prog", "--ppn cannot be '--line-buffer'"),
        ("--line-buffer=yes prog", "takes no value"),
        ("-n 2 --np 2 prog", "stands twice"),
        ("-n 2", "there is no program"),
        ("--pmi=pmi2 prog", "--pmi cannot be 'pmi2'"),
        ("-n 4 --ppn 2 --cpu-bind list:1-2 prog", "1 lists for 2 ranks on a node"),
        ("-n 1 --cpu-bind list:1-x prog", "'1-x' is not a list of CPUs"),
        ("-n 1 --cpu-bind cores prog", "--cpu-bind cannot be 'cores'"),
    ],
)
def test_what_pals_would_not_take(words: str, error: str) -> None:
    with pytest.raises(pals.UsageError, match=re.escape(error)):
        pals.parse(words.split())


def test_the_simulator_takes_no_other_option_either(bench: Benches) -> None:
    ended = bench("pals").run(ranks_per_node=1, launcher={"args": ["--bind-to", "none"]})
    assert ended.code == 2
    assert "mpiexec: --bind-to is not an option of PALS" in ended.output


@pytest.mark.parametrize("launcher", ["hydra", "openmpi", "intelmpi"])
def test_another_launcher_there_gets_none_of_its_flags(launcher: str) -> None:
    """Aurora's own flags are those of its own mpiexec."""
    asked: dict[str, Any] = {**NEEDED["aurora"], "command": ["x"], "launcher": {"name": launcher}}
    start = plan(JobSpec.of({**asked, "options": ["no-vni"]}), Site.load("aurora")).start
    assert not {"--pmi=pmix", "--no-vni", "--line-buffer", "--cpu-bind"} & set(start)


class TestRanksOnAuroraNodes:
    """Masks and CPU lists: aurora/running-jobs-aurora and the pages on PyTorch, 2026-08-19."""

    GENERAL = "1-8:9-16:17-24:25-32:33-40:41-48:53-60:61-68:69-76:77-84:85-92:93-100"
    DDP = "4-7:8-11:12-15:16-19:20-23:24-27:56-59:60-63:64-67:68-71:72-75:76-79"

    def lists(self, ranks: int, *options: str) -> list[str]:
        fields: dict[str, Any] = {**NEEDED["aurora"], "command": ["x"], "ranks_per_node": ranks}
        decided = plan(JobSpec.of({**fields, "options": list(options)}), Site.load("aurora"))
        parsed, _ = pals.parse([*decided.start[1:], "program"])
        assert parsed["--cpu-bind"] == "list:" + ":".join(decided.cpu_lists)
        return decided.cpu_lists

    @pytest.mark.parametrize(
        ("ranks", "options", "lists"),
        [
            (12, [], GENERAL),
            (12, ["ddp-cores"], DDP),
            (6, [], "1-17:18-34:35-51:53-69:70-86:87-103"),
            (1, [], "1-51,53-103"),
        ],
    )
    def test_as_the_guides_write_them(self, ranks: int, options: list[str], lists: str) -> None:
        assert self.lists(ranks, *options) == lists.split(":")

    @pytest.mark.parametrize("ranks", [1, 6, 12, 24, 48])
    @pytest.mark.parametrize(
        ("options", "free"),
        [
            ([], {0, 52}),
            (["copper"], {0, 52, *range(48, 52)}),
            (["ddp-cores", "copper"], {0, 52, *range(28, 52), *range(80, 104)}),
        ],
    )
    def test_nobody_gets_a_core_that_is_not_free(
        self, ranks: int, options: list[str], free: set[int]
    ) -> None:
        lists = self.lists(ranks, *options)
        assert len(lists) == ranks
        used: list[int] = []
        for cpus in lists:
            for part in cpus.split(","):
                first, _, last = part.partition("-")
                used += range(int(first), int(last or first) + 1)
        assert len(set(used)) == len(used), "each core once"
        assert not free & set(used)
        assert set(used) <= set(range(104))

    def test_oneccls_workers(self) -> None:
        lists = self.lists(12, "ccl-workers")
        workers = ["42", "43", "44", "45", "46", "47", "94", "95", "96", "97", "98", "99"]
        assert not any(number in re.split("[,:]", cpus) for cpus in lists for number in workers)
        assert lists[5] == "36-41,48"
