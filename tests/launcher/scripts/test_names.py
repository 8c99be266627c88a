"""No variable or function of our shell meets a user's: each name begins with castoff_ or CASTOFF_."""

from __future__ import annotations

import re

from .conftest import Benches
from .examples import EXAMPLES
from .test_rendering import rendered

MEANT = {
    # What a rank is told.
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"),
    *("ZE_AFFINITY_MASK", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    # Where programs and libraries are found, by `python`, `stage` and containers.
    *("PATH", "LD_LIBRARY_PATH"),
    # Where the job itself says nothing.
    *("PYTHONUNBUFFERED", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"),
    # An array's own index, for programs that read the scheduler's variable.
    *("SLURM_ARRAY_TASK_ID", "PBS_ARRAY_INDEX"),
    # For srun, for an mpiexec on this machine, and for submitit.
    *("SLURM_HOSTFILE", "SLURM_EXPORT_ENV", "HYDRA_LAUNCHER", "I_MPI_HYDRA_BOOTSTRAP", "SUBMITIT_EXECUTOR"),
    # For a program that flux exec starts on each host, as flux run would.
    *("FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_SIZE"),
    # The shell's own, and for a single read or command.
    *("_", "IFS", "LC_ALL", "POSIXLY_CORRECT"),
}
"""Names that the scripts set because programs are to see them."""

NAME = "[A-Za-z_][A-Za-z0-9_]*"
ASSIGNED = re.compile(
    rf"(?:^|[\s;&|({{'\"])(?:({NAME})(?:\[[^]=]*\])?\+?=|({NAME}) ?\(\) ?[{{(]|for ({NAME}) in"
    rf"|(?:^|[;&|({{]|do|then|else|while|until|IFS=) *"
    rf"(?:read|mapfile|readarray|local|declare|typeset|export|readonly|getopts)((?: +-?{NAME})+))",
    re.MULTILINE,
)
"""An assignment anywhere in a line, a function, a loop's variable, and what builtins assign."""


def assigned(script: str) -> set[str]:
    """The names that a script, or one that it writes, assigns: rather one too many than one too few."""
    # What is awk's, a message's, a comment's or a directive's is not shell.
    text = re.sub(
        r"""awk (?:-v (?:"[^"]*"|\S+) |\\\n *)*'[^']*'(?: \w+=[0-9])?(?: - \w+=[0-9])?""", "", script
    )
    text = re.sub(r"""-W "[^"]*"|scontrol update "[^"]*" \w+=[0-9]|echo (?:"[^"]*"(?: |\\\n)*)+""", "", text)
    text = re.sub(r"(?:^|(?<=\s))#.*", "", text, flags=re.MULTILINE)
    text = re.sub(r"unset -f (?:.*\\\n)*.*", "", text)  # which assigns none
    found: set[str] = set()
    for *names, several in ASSIGNED.findall(text):
        found |= {name for name in names if name}
        found |= {word for word in several.split() if not word.startswith("-")}
    return found


def ours(script: str, name: str) -> set[str]:
    """Those that neither job nor site asks for."""
    decided = EXAMPLES[name].plan()
    for line in (*decided.setup, *decided.teardown, *decided.site_teardown):
        script = script.replace(f"{line}\n", "")
    job = {*decided.variables, *decided.env_from, *(decided.container.env if decided.container else ())}
    return assigned(script) - job


def test_the_search_finds_every_kind() -> None:
    text = (
        "a=1; b+=2\nfor c in x; do read -r d e; done\nlocal f=1\nexport g\nh() { :; }\n(i=2)\n[ x ] || j=$1"
    )
    assert assigned(text) == set("abcdefghij")


def test_every_name_of_ours_is_marked() -> None:
    unmarked = {
        (found, name)
        for name in EXAMPLES
        for found in ours(rendered(name), name)
        if not found.startswith(("castoff_", "CASTOFF_")) and found not in MEANT
    }
    assert unmarked == set()


def test_plain_names_reach_the_program(bench: Benches) -> None:
    """Such as scripts like to use for themselves."""
    names = "attempt buffer child code end folder host item last limit link log name names program rank said"
    names += " signal sizes started storage target told fail copy clean run count refuse pass_on"
    mine = dict.fromkeys(names.split(), "mine")
    here = bench("hydra")
    (here.folder / "data").write_text("x")
    ended = here.run(ranks_per_node=2, env=mine, stage=[{"from": "data"}])
    assert ended.code == 0, ended.output
    for seen in here.ranks():
        assert {name: seen["environ"].get(name) for name in mine} == mine
