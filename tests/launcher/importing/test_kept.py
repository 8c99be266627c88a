"""Scripts that are kept whole, and one line that says why castoff does not start their ranks."""

from __future__ import annotations

from typing import Any

import pytest

from castoff.launcher.importing.imported import nested
from castoff.launcher.importing.script import NotAScript, read_script

MISMATCH = "the launch line starts 2 ranks on a node, and the directives ask for 4 CPUs"
CHANGES = "sets from variables that may change below it"
LONG = (
    "command.1 is 131,072 bytes long, but Linux passes at most 131,071 to a program: write it to a file, and "
    "pass the file's name"
)
HEAD = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\n#SBATCH -t 10\n"


def kept(body: str, head: str = HEAD) -> str:
    """Why a script is kept; its body is in the job file byte for byte."""
    result = read_script(head + body, "a.sh")
    if result.kept:
        directives = ("#SBATCH", "#PBS", "# flux:")
        lines = [line for line in head.splitlines(keepends=True) if not line.startswith(directives)]
        assert result.fields["script"] == "".join(lines) + body
        assert "command" not in result.fields and "setup" not in result.fields
    return result.kept


def fields(body: str, head: str = HEAD) -> dict[str, Any]:
    return nested(read_script(head + body, "a.sh").fields)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("D=/scratch/u/tmp; rm -rf $D/*\nsrun ./a\n", "line 5 runs rm, and more follows"),
        ("export D=/scratch/u/tmp; rm -rf $D/*\nsrun ./a\n", "line 5 runs rm, and more follows"),
        ("cd /scratch/u/tmp\nrm -rf *\ncd /data/run\nsrun ./prog\n", "line 5 changes the folder"),
        ("cd /scratch/u/tmp\nsource env.sh\nX=$(pwd)\nsrun ./prog\n", "line 5 changes the folder"),
        ("cd /a && python prep.py\ncd /data && python a.py\n", "line 5 joins commands by && or ||"),
        (
            "cp params.in $W\ncd $W\nsrun python a.py\ncp result* ~\nrm -rf *\n",
            "line 5 runs cp, and more follows",
        ),
        ("srun a & srun b & srun c & wait\n", "line 5 starts a program in the background"),
        ("scheduler &\nsrun worker &\nfrontend\n", "line 5 starts a program in the background"),
        ("srun tool x > out.bam\n", "line 5, its last, redirects what it reads or writes"),
        ("srun tool x | tee out.bam\n", "line 5, its last, has a pipe"),
        ('CMD=$(sed -n "${SLURM_ARRAY_TASK_ID}p" cmds)\neval $CMD\n', "line 6, its last, starts no ranks"),
        ("python work.py\nfusermount3 -u x\n", "line 5 runs python, and more follows"),
        ("cd scripts\nsrun python main.py\n", "line 5 changes the folder"),
        ("srun python main.py\necho done\n", "line 5 runs srun, and more follows"),
        ("python x.py\n", "line 5, its last, starts no ranks"),
        ("set -x\nsrun python x.py\n", "line 5 sets options of the shell"),
        ("trap 'cp x y' EXIT\nsrun python x.py\n", "line 5 runs trap, and more follows"),
        ("f() { a; }\nsrun python x.py\n", "line 5 defines a function"),
        ("for x in a; do srun ./a; done\n", "line 5, its last, is a loop"),
        ("cat <<EOF\na\nEOF\nsrun ./a\n", "line 5 redirects what it reads or writes"),
        ("srun ./a 'open\n", "line 5 cannot be read as bash"),
        ("srun python x.py $1\n", "line 5 has $1, which the shell expands"),
        ("srun python x.py $(date)\n", "line 5 has $(date), which the shell expands"),
        ("srun python x.py *.txt\n", "line 5 has *.txt, which the shell expands"),
        ('A=(1 2)\nsrun python x.py "${A[@]}"\n', 'line 6 has "${A[@]}", which the shell expands'),
        ("srun python x.py $SLURM_PROCID\n", "line 5 uses $SLURM_PROCID, which differs in a rank"),
        ("A=$(ls)\nsrun python x.py $A\n", "line 6 uses $A, which line 5 sets but does not export"),
        ("source e.sh\nsrun p $LR\n", "line 6 uses $LR, which line 5 may have set without exporting it"),
        ("export WORLD_SIZE=2\nsrun ./a\n", "line 5 sets WORLD_SIZE, which castoff sets itself"),
        ('echo "$0"\nsrun ./a\n', "line 5 uses the script's own file or arguments"),
        ("X=${1:-a}\nsrun ./a $X\n", "line 5 uses the script's own file or arguments"),
        ("echo ${LR:=1}\nsrun ./a $LR\n", "line 5 sets a variable on the way"),
        ("printf -v LR 1\nsrun ./a $LR\n", "line 5 sets a variable on the way"),
        ("LR=1\nLR=$LR2\nsrun ./a $LR\n", "line 7 uses $LR, which line 6 sets but does not export"),
        ("A+=b\nsrun ./a $A\n", "line 6 uses $A, which line 5 sets but does not export"),
        ("export RANK=3\nsrun ./a\n", "line 5 sets RANK, which castoff sets itself"),
        ("unset SLURM_NTASKS\nsrun ./a\n", "line 5 sets SLURM_NTASKS, which castoff sets itself"),
        ("A=1 B=2\nC=3 srun ./a\n", "line 6 sets variables for one command"),
        ("A=1 export B=2\nsrun ./a\n", "line 5 sets variables for one command"),
        ("A=1 srun --export=ALL,OMP_NUM_THREADS=2 ./a\n", "line 5 sets variables for one command"),
        ("srun --export=A=1 ./a\n", "line 5 has --export"),
        ("srun ./a b=~/x\n", "line 5 has b=~/x, which the shell expands"),
        ("set -eu\nsrun ./a $LR\n", "line 6 uses $LR, which may not be set"),
        ("echo $SLURM_GPUS\nsrun ./a\n", "line 5 uses SLURM_GPUS, which differs in castoff's job"),
        (
            "export T=${SLURM_CPUS_PER_TASK:-1}\nsrun -c 1 -n 8 ./a\n",
            "line 5 uses SLURM_CPUS_PER_TASK, which differs in castoff's job",
        ),
        ("A=$B\nmodule load b\nsrun ./a $A\n", f"line 7 uses $A, which line 5 {CHANGES}"),
        ("export B=1\nA=$B\nexport B=2\nsrun ./a $A\n", f"line 8 uses $A, which line 6 {CHANGES}"),
        (
            "N=8\nsource e.sh\nsrun -n $N ./a\n",
            "line 7: --ntasks is $N, which is not a number that is known before the job runs",
        ),
        ("export OMP_NUM_THREADS=1\nsource e.sh\nsrun ./a\n", "it computes OMP_NUM_THREADS"),
        ("srun -n 4 ./a\n", "the script does not say on which nodes 4 ranks start"),
        ("srun -n 4 --ntasks-per-node=2 ./a\n", MISMATCH),
        ("srun -n 9 ./a\n", "9 ranks are not the same number on each of 2 nodes"),
        ("srun -N 1 -n 4 ./a\n", "the launch line uses 1 of 2 nodes"),
        ("srun -n 1 ./a\n", "the launch line uses 1 of 2 nodes"),
        ("srun -c 4 ./a\n", "the launch line asks for 16 CPUs of a node, and the directives for 4"),
        (
            "srun --gpus-per-task=1 ./a\n",
            "the launch line asks for 4 GPUs of a node, and the directives for 0",
        ),
        ("srun -o out.%t ./a\n", "line 5 has --output"),
        ("srun --of-a-plugin ./a\n", "line 5: castoff does not know --of-a-plugin"),
        ("srun accelerate launch a.py\n", "line 5 starts accelerate, which may start workers of its own"),
        (
            "srun python -m torch.distributed.launch a.py\n",
            "line 5 starts python, which may start workers of its own",
        ),
        ("/opt/mpi/bin/mpirun -np 8 --map-by ppr:4:node ./a\n", "line 5 names its launcher by a path"),
        ("srun ''\n", "line 5 does not name its program plainly"),
        (f"srun ./a {'x' * 131_072}\n", LONG),
        ("IFS=,\nsrun ./a\n", "line 5 sets IFS, which castoff sets itself"),
        ("srun bash a.sh x\n", "line 5 starts bash, which may start workers of its own"),
        ("srun ./run.sh\n", "line 5 starts ./run.sh, which may start workers of its own"),
        ("export SRUN_EXPORT_ENV=NONE\nsrun ./a\n", "line 5 sets SRUN_EXPORT_ENV, which castoff sets itself"),
        ("srun bash -c 'python x.py'\n", "line 5 starts bash, which may start workers of its own"),
        ("mpirun -np 8 ./a\n", "line 5: the script does not show whose mpirun it is"),
        ("A=$SLURM_GPUS\nsrun ./a\n", "line 5 uses SLURM_GPUS, which differs in castoff's job"),
        ("mpirun -np 1 Rscript a.R\n", "the launch line uses 1 of 2 nodes"),
        ("julia -p $SLURM_NTASKS a.jl\n", "line 5, its last, starts no ranks"),
        ("torchrun --nproc_per_node=4 a.py\n", "the launch line uses 1 of 2 nodes"),
        ("srun torchrun --nnodes 2 --nproc_per_node=4 a.py\n", "4 torchruns start on each node"),
    ],
)
def test_what_is_not_proven_is_kept(body: str, why: str) -> None:
    assert kept(body) == why


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("#SBATCH -n 32\n", "the directives leave the number of nodes to Slurm"),
        ("#SBATCH -N 2-4 --ntasks-per-node=2\n", "the directives leave the number of nodes to Slurm"),
        (
            "#SBATCH -N 2 --ntasks-per-node=4 --gpus-per-task=1\n",
            "--gpus-per-task hides the other GPUs of its node from each rank",
        ),
        ("#SBATCH -N 2 -n 5 --ntasks-per-node=3\n", "5 tasks are not the same number on each of 2 nodes"),
        ("#SBATCH -N 2 -n 4\n", "the directives leave the tasks of each node to Slurm"),
        (
            "#SBATCH -N 2 --ntasks-per-node=2 -G 4\n",
            "the directives leave the number of GPUs of each node to Slurm",
        ),
        ("#SBATCH -N 1\n", "the launch line starts one process, which may start workers of its own"),
        ("#SBATCH -N 2 --gres=gpu:4\n", "each rank has 4 GPUs, so its program may start workers of its own"),
        ("#SBATCH -N 2 --ntasks-per-node=4 --gres=gpu:2\n", "4 ranks share 2 GPUs of a node"),
        ("#SBATCH -N 2 --ntasks-per-node=2 --cpus-per-gpu=2\n", "castoff has no field for --cpus-per-gpu"),
        ("#SBATCH -N 2 --ntasks-per-node=2 --hint=nomultithread\n", "castoff has no field for --hint"),
        ("#SBATCH -N 2 --ntasks-per-node=2 --input=x\n", "castoff has no field for --input"),
        ("#SBATCH -N 2 --ntasks-per-node=2 -D /x\n", "a directive names its folder"),
        (
            "#SBATCH -N 2 --ntasks-per-node=2 --export=NONE\n",
            "--export=NONE hides the script's variables from srun's ranks",
        ),
        (
            "#SBATCH -N 2 --ntasks-per-node=2 --signal=B:USR1@9\n",
            "--signal=B:USR1@9 sends a signal to the script itself",
        ),
        ("#PBS -l select=2:ncpus=4\n", "it runs in the home folder"),
    ],
)
def test_what_the_directives_leave_open_is_kept(head: str, why: str) -> None:
    assert kept("srun ./a\n", f"#!/bin/bash\n{head}") == why


@pytest.mark.parametrize(
    ("head", "name", "is_kept"),
    [
        ("-N 1 -n 4", "NTASKS", False),
        ("-N 1 -n 4", "NTASKS_PER_NODE", True),
        ("-N 1 --ntasks-per-node=4", "NTASKS", False),
        ("-N 1 --ntasks-per-node=4 -c 3", "CPUS_PER_TASK", False),
        ("-N 1 -n 1 -c 12", "CPUS_PER_TASK", True),
        ("-N 1 -n 4", "TASKS_PER_NODE", True),
        ("-N 1 -n 4", "NNODES", False),
    ],
)
def test_variables_about_sizes_stay_as_they_are(head: str, name: str, is_kept: bool) -> None:
    body = f"echo $SLURM_{name}\nsrun -n 4 ./a\n"
    why = f"line 3 uses SLURM_{name}, which differs in castoff's job"
    assert kept(body, f"#!/bin/bash\n#SBATCH {head}\n") == (why if is_kept else "")


def test_what_is_said_of_ranks_is_not_said_of_a_script() -> None:
    result = read_script(f"{HEAD}#SBATCH -o x\nsrun ./a {'x' * 131_072}\n", "a")
    assert (result.left_out, result.remarks) == ([], {})


@pytest.mark.parametrize("shebang", ["#!/bin/sh\n", "#!/usr/bin/env python3\n", "#!/bin/tcsh\n", ""])
def test_another_shell_is_kept(shebang: str) -> None:
    assert (
        kept("srun ./a\n", shebang + HEAD.partition("\n")[2])
        == "its first line is not that of a script for bash"
    )


class TestDirectives:
    def test_sizes_are_the_schedulers_own(self) -> None:
        head = (
            "#!/bin/bash\n#SBATCH -N 2 -n 8 -c 4\n#SBATCH --gres=gpu:a100:4 --mem=8G --hint=nomultithread\n"
        )
        found = fields("./a\n", head)
        assert found["directives"]["slurm"] == {
            "nodes": "2",
            "ntasks": "8",
            "cpus-per-task": "4",
            "gres": "gpu:a100:4",
            "mem": "8G",
            "hint": "nomultithread",
        }
        neutral = {"nodes": 2, "cores_per_rank": 16, "devices_per_rank": 4, "device_type": "a100"}
        assert {**found, **neutral, "memory": "8G"} == found

    def test_a_number_of_nodes_that_slurm_chooses(self) -> None:
        result = read_script("#!/bin/bash\n#SBATCH -n 32\n./a\n", "a.sh")
        assert (result.fields["nodes"], result.fields["cores_per_rank"]) == (1, 32)
        assert "leave the number of nodes to Slurm" in result.remarks["nodes"]

    def test_a_script_that_says_nothing_of_sizes(self) -> None:
        assert {*fields("./a\n", "#!/bin/bash\n#SBATCH -t 10\n")} == {"name", "walltime", "inherit", "script"}

    def test_a_name_is_that_of_the_file(self) -> None:
        assert fields("./a\n")["name"] == "a.sh"
        assert fields("./a\n", "#!/bin/bash\n#SBATCH -J b\n")["name"] == "b"

    def test_a_name_that_castoff_cannot_give(self) -> None:
        result = read_script("#!/bin/bash\n#PBS -l walltime=1\n./a\n", "01_a b.pbs")
        assert result.fields["name"] == "job-01_a_b.pbs"
        assert "job-01_a_b.pbs in place of 01_a b.pbs" in result.notes[-1]

    def test_a_signal(self) -> None:
        assert fields("./a\n", "#!/bin/bash\n#SBATCH --signal=B:USR1@300\n")["signal"] == "USR1@300"
        found = fields("./a\n", "#!/bin/bash\n#SBATCH --signal=USR1@300\n")
        assert found["directives"] == {"slurm": {"signal": "USR1@300"}} and "signal" not in found

    def test_below_the_first_command_they_are_comments(self) -> None:
        body = "cd /x\n#SBATCH --qos=high\n./a\n"
        assert "qos" not in fields(body)
        assert any(one.startswith("Line 6 is a comment") for one in read_script(HEAD + body, "a").notes)

    def test_with_a_space_they_are_comments(self) -> None:
        result = read_script(f"{HEAD}# SBATCH --qos=high\n./a\n", "a")
        assert any(one.startswith("Line 5 is a comment") for one in result.notes)

    def test_of_two_schedulers(self) -> None:
        result = read_script(f"{HEAD}#PBS -q other\n./a\n", "a")
        assert "queue" not in result.fields and "#PBS" not in result.fields["script"]
        assert [one.what for one in result.left_out] == ["line 5: #PBS -q other"]

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("#SBATCH --partition=a$B", "replaces no variable"),
            ("#SBATCH hetjob", "heterogeneous"),
            ("#SBATCH --array=5-1", "array"),
        ],
    )
    def test_what_no_job_file_says(self, line: str, words: str) -> None:
        (refused,) = read_script(f"#!/bin/bash\n{line}\n./a\n", "a").refused
        assert words in refused.why

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("-D sub", {"output": "sub/slurm-%j.out"}),
            ("-D sub -a 1-2", {"output": "sub/slurm-%A_%a.out"}),
            ("-D /a%b -o o -e /e", {"output": "/a%%b/o", "error": "/e"}),
        ],
    )
    def test_output_is_beside_the_script(self, line: str, expected: dict[str, str]) -> None:
        assert fields("./a\n", f"#!/bin/bash\n#SBATCH {line}\n")["directives"] == {"slurm": expected}

    def test_a_job_that_its_script_starts_again_may_be(self) -> None:
        assert fields("scontrol requeue $SLURM_JOB_ID\n")["requeue"]["max"] == 5
        assert "requeue" not in fields("./a # scontrol requeue\n")


def test_output_of_flux_is_beside_the_script_too() -> None:
    found = fields("./a\n", "#!/bin/bash\n#flux: --cwd=/x --error=e\n")["directives"]
    assert found == {"flux": {"output": "/x/flux-{{id}}.out", "error": "/x/e"}}


class TestPbs:
    def test_a_script_starts_at_home(self) -> None:
        head = "#!/bin/bash\n#PBS -l select=2:ncpus=4\n"
        assert fields("./a\n", head)["workdir"] == "~"
        for line in ("cd $PBS_O_WORKDIR", 'cd "${PBS_O_WORKDIR}" || exit 1'):
            assert "workdir" not in fields(f"# a\n{line}\n./a\n", head)

    def test_directives_are_as_they_are_written(self) -> None:
        head = "#!/bin/bash\n#PBS -l select=1:ncpus=8+2:ncpus=4:gpu=a -l place=free\n#PBS -o x -j oe -V\n"
        found = fields("./a\n", head)
        assert found["directives"] == {
            "pbs": {"select": "1:ncpus=8+2:ncpus=4:gpu=a", "place": "free", "o": "x", "j": "oe"}
        }
        assert (found["nodes"], found["inherit"]) == (3, "all")

    def test_a_shell_that_a_directive_names(self) -> None:
        for first, expected in (("", "#!/bin/csh\n"), ("#!/bin/bash\n", "#!/bin/bash\n")):
            found = fields("./a\n", f"{first}#PBS -S /bin/csh\n")
            assert found["script"] == f"{expected}./a\n"
            assert found["directives"] == {"pbs": {"S": "/bin/csh"}}


def test_what_other_schedulers_lack() -> None:
    notes = read_script(f"{HEAD}# squeue\nscontrol show x\nsrun -n $SLURM_NTASKS ./a.srun | x\n", "a").notes
    assert notes == ["On a scheduler other than Slurm, the script lacks: scontrol, srun, SLURM_NTASKS."]


def test_lines_from_windows() -> None:
    result = read_script((HEAD + "module load x\n./a\n").replace("\n", "\r\n"), "a")
    assert result.fields["script"] == "#!/bin/bash\nmodule load x\n./a\n"
    assert any("CRLF" in text for text in result.notes)


def test_a_byte_order_mark_and_no_shebang() -> None:
    assert "byte order mark" in read_script("\ufeff" + HEAD + "./a\n", "a").notes[0]
    assert "does not begin with #!" in read_script("#SBATCH -N 2\n./a\n", "a").notes[0]
    assert read_script("#PBS -N a\ncd $PBS_O_WORKDIR\n", "a").notes == [
        "On a scheduler other than PBS, the script lacks: PBS_O_WORKDIR."
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("a\x00b", "is not text"),
        ("#!/usr/bin/env python3\nprint(1)\n", "python3"),
        ("import os\nimport sys\nprint(1)\n", "Python"),
        ('# trains\n\nimport os\nprint("rank", os.environ["RANK"])\n', "Python"),
        ("# Imported from a.sbatch.\n#   line 2: x\nname: a\ncommand: [x]\n", "is a job file already"),
        ("# Imported\nname: a\nscript: |\n  a\n", "is a job file already"),
        ("#SBATCH", "contains only directives"),
        ("#SBATCH -N 2\n", "contains only directives"),
        ("\n <!DOCTYPE html>\n<html>#SBATCH -N 2\n", "HTML"),
        ('{"cells": [], "metadata": {}}', "is a notebook"),
        ("#!/bin/bash\necho \x1b[1m\n", r"U\+001B \(line 2\)"),
        ("#!/bin/bash\necho \rx\n", r"U\+000D \(line 2\)"),
        ("#!/bin/bash\necho x\udce9\n", r"not UTF-8 text \(line 2\)"),
    ],
)
def test_no_script(text: str, words: str) -> None:
    with pytest.raises(NotAScript, match=words):
        read_script(text, "a")


def test_a_program_in_python_with_directives_is_a_script() -> None:
    script = "#!/usr/bin/env python3\nimport os\nprint(1)\n"
    found = read_script(script.replace("\n", "\n#SBATCH -N 2\n", 1), "a").fields
    assert found["script"] == script
