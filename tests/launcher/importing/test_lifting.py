"""Scripts whose ranks castoff starts, as that changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from castoff.launcher.importing import script
from castoff.launcher.importing.imported import nested
from castoff.launcher.importing.lifting import WITHOUT_PARSER
from castoff.launcher.importing.script import read_script

UNSET = "unset -v OMP_NUM_THREADS\n"
HEAD = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\n#SBATCH -t 10\n"


def fields(body: str, head: str = HEAD) -> dict[str, Any]:
    result = read_script(head + body, "a.sh")
    assert result.kept == "" and result.refused == []
    return nested(result.fields)


def test_setup_is_one_block_in_its_order() -> None:
    body = "\n# first\nmodule load a; ml b\nexport A=1 B=$(date)\n# why\nmkdir -p $A/x\n\nsrun python a.py\n"
    found = fields(body)
    assert found["setup"] == [
        UNSET,
        "set +e\nmodule load a; ml b\nexport A=1 B=$(date)\n# why\nmkdir -p $A/x\n",
    ]
    assert (found["command"], found["shell"], found["inherit"]) == (["python", "a.py"], "/bin/bash", "all")


@pytest.mark.parametrize(
    ("shebang", "body"), [("#!/bin/bash -e", "module load a\n"), ("#!/bin/bash", "set -euo pipefail\n")]
)
def test_a_script_that_ends_at_a_failure(shebang: str, body: str) -> None:
    assert fields(f"{body}srun ./a\n", HEAD.replace("#!/bin/bash", shebang))["setup"][-1] == body


def test_a_line_of_setup_that_may_fail_before_set_e() -> None:
    assert fields("module load a\nset -e\nsrun ./a\n")["setup"] == [UNSET, "set +e\nmodule load a\nset -e\n"]


def test_a_login_shell() -> None:
    assert fields("srun ./a\n", HEAD.replace("bash", "bash -l", 1))["shell"] == "/bin/bash -l"


def test_no_setup() -> None:
    assert "setup" not in fields("# nothing\n\nsrun ./a\n")


@pytest.mark.parametrize(
    ("body", "command"),
    [
        ("srun ./a 'b c' \"d\" e\\ f x=y\n", ["./a", "b c", "d", "e f", "x=y"]),
        ("srun ./a \\\n  --b \\\n  c # d\n", ["./a", "--b", "c"]),
        ("export D=$(pwd)\nsrun ./a $D\n", ["bash", "-c", "exec ./a $D"]),
        ("D=/x\nE=$D/y F='a b'\nsrun ./a \"${E}\"\n", ["bash", "-c", 'D=/x; E=$D/y; exec ./a "${E}"']),
        ("A=1\nexport A\nsrun ./a $A\n", ["bash", "-c", "exec ./a $A"]),
        ("srun ./a $HOME/x $SLURM_JOB_ID\n", ["bash", "-c", "exec ./a $HOME/x $SLURM_JOB_ID"]),
        ("A=1\nunset A\nsrun ./a $A\n", ["bash", "-c", "exec ./a $A"]),
        ("export A=1\nunset A\nA=2\nsrun ./a $A\n", ["bash", "-c", "A=2; exec ./a $A"]),
        ("source e.sh\nsrun ./a $HOME\n", ["bash", "-c", "exec ./a $HOME"]),
        ("module load b\ncd $SLURM_SUBMIT_DIR\nsrun ./a\n", ["./a"]),
    ],
)
def test_the_programs_words(body: str, command: list[str]) -> None:
    assert fields(body)["command"] == command


@pytest.mark.parametrize(
    ("launch", "head", "ranks"),
    [
        ("srun", "-N 2 --ntasks-per-node=4", (2, 4, None, 0)),
        ("srun -n 8", "-N 2 -n 8 --ntasks-per-node=4 -c 3", (2, 4, 3, 0)),
        ("srun -n 8 -N 2 -c 3", "-N 2 --ntasks-per-node=4 -c 3", (2, 4, 3, 0)),
        ("srun -n $SLURM_NTASKS", "-N 2 --ntasks-per-node=4", (2, 4, None, 0)),
        ("N=8\nsrun -n $N", "-N 1 -n 8", (1, 8, None, 0)),
        ("srun -n 4", "-n 1 -c 12 -N 1", (1, 4, 3, 0)),
        ("srun -n 8 --ntasks-per-node=4 -c 16", "-N 2 --exclusive", (2, 4, 16, 0)),
        ("srun", "-N 2 --ntasks-per-node=4 --gres=gpu:4", (2, 4, None, 1)),
        ("srun --gpus-per-node=4", "-N 2 --ntasks-per-node=4 --gpus-per-node=a100:4", (2, 4, None, 1)),
        (
            "srun torchrun --nnodes 2 --nproc_per_node=4",
            "-N 2 --ntasks-per-node=1 --gpus-per-task=4",
            (2, 4, None, 1),
        ),
        ("srun torchrun --nnodes 2 --nproc_per_node=4", "-N 2 -c 32 --gres=gpu:4", (2, 4, 8, 1)),
        ("srun torchrun --nnodes=$SLURM_NNODES --nproc-per-node=gpu", "-N 2 --gres=gpu:4", (2, 4, None, 1)),
        ("torchrun --standalone --nproc_per_node 4", "-N 1 -c 8", (1, 4, 2, 0)),
        ("python -m torch.distributed.run --nproc_per_node 4", "-c 8", (1, 4, 2, 0)),
    ],
)
def test_sizes(launch: str, head: str, ranks: tuple[int | None, ...]) -> None:
    found = fields(f"{launch} ./a.py\n", f"#!/bin/bash\n#SBATCH {head}\n")
    names = ("nodes", "ranks_per_node", "cores_per_rank", "devices_per_rank")
    assert tuple(found.get(name) for name in names) == ranks
    assert found["command"] == (["python", "./a.py"] if "torch" in launch else ["./a.py"])
    assert ("torch" in launch) == (found.get("launcher") == {"torchrun": True})
    assert found.get("device_type") == ("a100" if "a100" in head else None)


def test_options_of_the_launcher() -> None:
    found = fields("srun --cpu-bind=cores -l --kill-on-bad-exit=1 --export=ALL,A=1 ./a\n")
    assert (found["launcher"], found["env"]["A"]) == ({"args": ["--cpu-bind=cores"]}, "1")


def test_sizes_that_are_the_same_are_read() -> None:
    body = "export N=$SLURM_NTASKS L=$SLURM_NTASKS_PER_NODE G=$SLURM_GPUS_ON_NODE\nsrun ./a $N\n"
    assert fields(body)["command"] == ["bash", "-c", "exec ./a $N"]


def test_the_other_ranks_go_on_when_one_fails() -> None:
    for option, args in (("", True), ("-K", False), ("-K0", True), ("--kill-on-bad-exit=0", True)):
        found = fields(f"srun {option} ./a\n")
        assert found.get("launcher") == ({"args": ["--kill-on-bad-exit=0"]} if args else None)


def test_an_mpi_that_a_module_brings() -> None:
    assert fields("module load openmpi/5\nmpirun -np 8 ./a\n")["launcher"] == {"name": "openmpi"}


def test_pbs() -> None:
    head = "#!/bin/bash -l\n#PBS -l select=2:ncpus=64:mpiprocs=4:ngpus=4:model=a100\n#PBS -j oe\n"
    found = fields("cd $PBS_O_WORKDIR\nmpiexec -n 8 --ppn 4 --depth=8 --cpu-bind depth ./a\n", head)
    assert (found["nodes"], found["ranks_per_node"], found["cores_per_rank"]) == (2, 4, 16)
    assert (found["select"], found["launcher"]["name"]) == ({"model": "a100"}, "pals")
    assert "directives" not in found and "inherit" not in found


@pytest.mark.parametrize(
    "size", ["8", "$((SLURM_NNODES * 4))", '"$(($SLURM_NNODES*${SLURM_NTASKS_PER_NODE}))"']
)
def test_a_world_size_as_castoff_sets_it(size: str) -> None:
    assert fields(f"export WORLD_SIZE={size}\nsrun ./a\n")["ranks_per_node"] == 4


def test_threads_that_pbs_sets() -> None:
    for more, threads in (("", "64"), (":ompthreads=2", "2")):
        head = f"#!/bin/bash\n#PBS -l select=2:ncpus=64:mpiprocs=4{more}\n"
        found = fields("cd $PBS_O_WORKDIR\nmpiexec -n 8 --ppn 4 --cpu-bind depth ./a\n", head)
        assert found["env"] == {"OMP_NUM_THREADS": threads}


@pytest.mark.parametrize(
    ("body", "head", "threads"),
    [
        ("srun ./a\n", HEAD, {"env": {"OMP_NUM_THREADS": None}}),
        ("srun ./a\n", f"{HEAD}#SBATCH -c 4\n", {}),
        ("export OMP_NUM_THREADS=2\nsrun ./a\n", f"{HEAD}#SBATCH -c 4\n", {"env": {"OMP_NUM_THREADS": "2"}}),
        (
            "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nsrun ./a\n",
            f"{HEAD}#SBATCH -c 4\n",
            {"env": {"OMP_NUM_THREADS": "4"}},
        ),
    ],
)
def test_threads(body: str, head: str, threads: dict[str, Any]) -> None:
    found = fields(body, head)
    assert {name: found[name] for name in ("env",) if name in found} == threads


def test_variables_of_the_launcher_and_of_torchrun() -> None:
    head = "#!/bin/bash\n#SBATCH -N 2 --ntasks-per-node=1\n"
    line = "srun --export=ALL,A=1 torchrun --nnodes=2 --nproc_per_node=2 --max_restarts=3 a.py\n"
    assert fields(line, head)["env"] == {"A": "1", "PET_MAX_RESTARTS": "3", "OMP_NUM_THREADS": None}


def test_a_signal_is_for_the_ranks() -> None:
    assert fields("srun ./a\n", f"{HEAD}#SBATCH --signal=USR1@300\n")["signal"] == "USR1@300"


def test_output_is_in_castoffs_logs() -> None:
    result = read_script(f"{HEAD}#SBATCH -o x.out\nsrun ./a\n", "a")
    assert "directives" not in result.fields
    assert [one.text for one in result.left_out] == ["output: x.out"]


def test_settings_of_torchrun_are_variables() -> None:
    head = "#!/bin/bash\n#SBATCH -N 1 -c 4\n"
    found = fields("torchrun --nproc-per-node=4 --max-restarts=2 -m a.b --c\n", head)
    assert found["command"] == ["python", "-m", "a.b", "--c"]
    assert found["env"] == {"PET_MAX_RESTARTS": "2", "OMP_NUM_THREADS": None}


def test_without_the_parser_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tree_sitter_bash", None)
    result = read_script(f"{HEAD}srun ./a\n", "a")
    assert result.kept == WITHOUT_PARSER and "script" in result.fields


def test_the_wish_to_keep_it() -> None:
    assert script.read_script(f"{HEAD}srun ./a\n", "a", "driver").kept == "--driver asks for it"
