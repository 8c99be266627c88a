"""What becomes of the lines of a script, one kind after the other."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from launcher.importing.imported import nested
from launcher.importing.script import NotAScript, read_script

HEAD = "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\n#SBATCH -t 10\n"


def fields(body: str, head: str = HEAD) -> dict[str, Any]:
    return nested(read_script(head + body).fields)


def why(body: str, fate: str = "not expressed", head: str = HEAD) -> list[str]:
    return [f"{one.what}: {one.why}" for one in read_script(head + body).account.of(fate)]  # type: ignore[arg-type]


class TestSetup:
    def test_lines_stay_as_they_are_and_in_order(self) -> None:
        body = "module load a\nif [ -e x ]; then\n  . x\nfi\nexport A=$(date)\nsrun python a.py\n"
        assert fields(body)["setup"] == ["module load a", "if [ -e x ]; then\n  . x\nfi", "export A=$(date)"]

    def test_plain_exports_are_env(self) -> None:
        found = fields("export A=1 B='x y'\nmodule load a\nexport C=\"$A/z\"\nsrun python a.py\n")
        assert found["env"] == {"B": "x y", "C": "1/z"} | ({"A": "1"} if "A" in found["env"] else {})
        assert "export A=1" not in found.get("setup", [])

    @pytest.mark.parametrize("line", ["./prepare.sh", "make data", "export PATH=$A/bin:$PATH", "A=$A:2"])
    def test_what_setup_may_read_is_set_there(self, line: str) -> None:
        found = fields(f"export A=1\n{line}\nexport A2=$A\nsrun python a.py\n")
        assert found["setup"][0] == "export A=1"
        assert "A" not in found.get("env", {})

    def test_rendezvous_is_castoffs(self) -> None:
        body = """
nodes=( $(scontrol show hostnames $SLURM_JOB_NODELIST) )
head=${nodes[0]}
export MASTER_ADDR=$head MASTER_PORT=29500
export WORLD_SIZE=$((SLURM_NNODES * 4))
echo "world $WORLD_SIZE at $MASTER_ADDR"
srun python a.py
"""
        assert "setup" not in fields(body) and "env" not in fields(body)
        assert len(why(body, "dropped")) == 5

    def test_but_not_where_the_program_needs_it(self) -> None:
        found = fields("hosts=$(scontrol show hostnames | tr '\\n' ,)\nsrun python a.py --hosts $hosts\n")
        assert found["setup"] == ["export hosts=$(scontrol show hostnames | tr '\\n' ,)"]
        assert found["command"] == ["bash", "-c", "exec python a.py --hosts $hosts"]

    def test_nor_where_setup_needs_it(self) -> None:
        found = fields("MASTER_ADDR=$(hostname)\nURL=tcp://$MASTER_ADDR:1\nsrun python a.py --url $URL\n")
        assert found["setup"] == ["MASTER_ADDR=$(hostname)", "export URL=tcp://$MASTER_ADDR:1"]

    def test_variables_of_ranks_stay_variables(self) -> None:
        found = fields("export WORLD_SIZE=8\nsrun python a.py --world $WORLD_SIZE --at $MASTER_ADDR\n")
        assert found["command"] == ["bash", "-c", "exec python a.py --world $WORLD_SIZE --at $MASTER_ADDR"]

    def test_threads_follow_from_the_cores(self) -> None:
        assert fields("export OMP_NUM_THREADS=8\nsrun python a.py\n")["env"] == {"OMP_NUM_THREADS": "8"}
        assert "setup" not in fields("export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK\nsrun python a.py\n")

    def test_options_of_the_shell_are_castoffs(self) -> None:
        assert "setup" not in fields("set -euxo pipefail\nset -x\nset +e\nclear\nsrun python a.py\n")

    @pytest.mark.parametrize(
        ("line", "folder"), [("cd /x", "/x"), ("cd $SLURM_SUBMIT_DIR/y", "y"), ("cd z", "z")]
    )
    def test_a_folder_is_the_workdir(self, line: str, folder: str) -> None:
        found = fields(f"cd $SLURM_SUBMIT_DIR\n{line}\nsrun python a.py\n")
        assert found["workdir"] == folder and found["command"] == ["python", "a.py"]

    def test_a_folder_that_only_the_job_knows(self) -> None:
        found = fields("cd $HOME/x\nsrun python a.py 'b c'\n")
        assert found["setup"] == ["cd $HOME/x", "export IMPORTED_DIR=$PWD"]
        assert found["command"] == [
            "bash",
            "-c",
            'cd "$IMPORTED_DIR" && exec "$@"',
            "bash",
            "python",
            "a.py",
            "b c",
        ]


class TestLaunch:
    def test_one_of_several(self) -> None:
        body = "srun hostname\npython prepare.py\nsrun python train.py\nsrun python evaluate.py\n"
        found = fields(body)
        assert found["command"] == ["python", "train.py"]
        assert found["setup"] == ["srun hostname", "python prepare.py"]
        assert any("line 8" in one and "after.afterok" in one for one in why(body))

    @pytest.mark.parametrize(
        "around", ["for x in 1 2; do\n{}\ndone", "if [ $A ]; then\n{}\nfi", "run() {{\n{}\n}}\nrun"]
    )
    def test_one_in_a_compound_is_said(self, around: str) -> None:
        body = around.format("srun python train.py") + "\n"
        assert fields(body)["command"] == ["python", "train.py"]
        assert any("castoff starts them once" in one for one in why(body))

    def test_a_group_is_its_lines(self) -> None:
        body = "{\n  module load x\n  N=4\n  srun -n $N --ntasks-per-node=2 python a.py; } > log 2>&1\n"
        found = fields(body)
        assert (found["command"], found["setup"]) == (["python", "a.py"], ["module load x"])
        assert (found["nodes"], found["ranks_per_node"], why(body)) == (2, 2, [])

    def test_what_stands_around_it(self) -> None:
        body = "mkdir -p out && time srun python a.py > out/log 2>&1 || exit 1\n"
        found = fields(body)
        assert (found["command"], found["setup"]) == (["python", "a.py"], ["mkdir -p out"])
        assert why(body) == []

    def test_no_program(self) -> None:
        assert fields("module load x\n")["command"] == ["name-your-program"]
        assert len(why("module load x\n")) == 1
        assert len(why("")) == 1

    def test_a_program_for_the_first_node(self) -> None:
        head = "#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=4\n"
        found = fields("python train.py\n", head)
        assert found["devices_per_rank"] == 4
        assert found["launcher"] == {"driver": True} and "ranks_per_node" not in found

    def test_fewer_nodes_than_the_job_has(self) -> None:
        assert fields("srun -n 4 --ntasks-per-node=4 python a.py\n")["nodes"] == 1

    def test_an_uneven_number(self) -> None:
        found = fields("srun -n 5 python a.py\n")
        assert (found["nodes"], found["ranks"]) == (2, 5) and "ranks_per_node" not in found

    def test_a_number_of_nodes_that_slurm_chooses(self) -> None:
        assert any(
            "number of nodes" in one for one in why("srun python a.py\n", head="#!/bin/bash\n#SBATCH -n 8\n")
        )

    def test_arguments_of_the_script(self) -> None:
        assert any("own arguments" in one for one in why("srun python a.py $1\n"))
        assert why("X=${1:-a}\nsrun python a.py $X\n") == []

    def test_what_a_launcher_of_torch_hands_the_program(self) -> None:
        found = fields("deepspeed --num_gpus 4 a.py --x 1\n")
        assert found["command"] == ["bash", "-c", 'exec python a.py --local_rank="$LOCAL_RANK" --x 1']
        assert found["ranks_per_node"] == 4

    def test_settings_of_torchrun_are_variables(self) -> None:
        found = fields("srun torchrun --nproc-per-node=4 --max-restarts=2 -m a.b --c\n")
        assert found["command"] == ["python", "-m", "a.b", "--c"]
        assert (found["env"], found["launcher"]) == ({"PET_MAX_RESTARTS": "2"}, {"torchrun": True})

    def test_a_container_that_is_not_known_stays_in_the_command(self) -> None:
        body = "srun apptainer exec --nv image.sif python a.py\n"
        assert fields(body)["command"] == ["apptainer", "exec", "--nv", "image.sif", "python", "a.py"]

    def test_what_runs_after_the_ranks(self) -> None:
        body = "srun python a.py\necho $?\ncp -r out $HOME\nwait\nexit 0\n"
        assert fields(body)["teardown"] == ["echo $CASTOFF_EXIT_CODE", "cp -r out $HOME"]
        assert len(why(body, "dropped")) == 2

    def test_the_ranks_code_is_that_before_another_command(self) -> None:
        body = "srun python a.py\nif [ $? = 0 ]; then cp a b || echo $?; fi\ncp b c\nrc=$?\n"
        first = "if [ $CASTOFF_EXIT_CODE = 0 ]; then cp a b || echo $?; fi"
        assert fields(body)["teardown"] == [first, "cp b c", "rc=$?"]

    @pytest.mark.parametrize(
        ("trap", "text"),
        [
            ("trap clean_scratch TERM EXIT", "clean_scratch"),
            ('trap "rm -r $SCRATCH" EXIT', "rm -r $SCRATCH"),
            ("trap -- 'echo $?' 0", "echo $CASTOFF_EXIT_CODE"),
            ("trap a EXIT\ntrap b EXIT", "b"),
        ],
    )
    def test_a_trap_comes_last(self, trap: str, text: str) -> None:
        assert fields(f"{trap}\nsrun python a.py\ncp out $HOME\n")["teardown"] == ["cp out $HOME", text]
        leaves = "cp out $HOME || exit 4"
        assert fields(f"{trap}\nsrun python a.py\n{leaves}\n")["teardown"] == [
            f"trap {shlex.quote(text)} EXIT",
            leaves,
        ]

    def test_a_trap_that_saves_when_the_job_is_ended(self) -> None:
        body = "trap 'cp -r out $HOME; exit 1' TERM\nsrun python a.py\n"
        assert "`teardown`" in why(body)[0]
        assert why(body.replace(" TERM", " EXIT TERM")) == why(body.replace(" TERM", " TERM 0")) == []

    def test_what_a_trap_needs_is_set(self) -> None:
        body = "HERE=/scratch/x\ntrap 'rm -r $HERE' EXIT\nsrun python a.py\ncp out $HOME || exit\n"
        assert fields(body)["setup"] == ["HERE=/scratch/x"]

    def test_a_trap_that_is_taken_back(self) -> None:
        assert "teardown" not in fields("trap a EXIT\nsrun python a.py\ntrap - EXIT\n")

    def test_a_job_that_submits_itself(self) -> None:
        assert any("requeue.max" in one for one in why("srun python a.py\nsbatch next.sh\n"))
        assert why("trap 'scontrol requeue $SLURM_JOB_ID' USR1\nsrun python a.py\n") == []


class TestDirectives:
    def test_below_the_first_command_they_are_comments(self) -> None:
        body = "cd /x\n#SBATCH --qos=high\nsrun python a.py\n"
        assert "qos" not in fields(body)
        assert any("line 6" in one and "first command" in one for one in why(body, "dropped"))

    def test_with_a_space_they_are_comments(self) -> None:
        body = "# SBATCH --qos=high\nsrun python a.py\n"
        assert any("takes it for a comment" in one for one in why(body, "dropped"))

    def test_of_two_schedulers(self) -> None:
        body = "#PBS -q other\nsrun python a.py\n"
        assert "queue" not in fields(body)
        assert any("is for qsub" in one for one in why(body))

    def test_resources_of_chunks(self) -> None:
        body = "#!/bin/bash\n#PBS -l select=2:ncpus=8:model=mil_a100\nmpiexec -n 2 python a.py\n"
        assert fields("", body)["select"] == {"model": "mil_a100"}

    def test_chunks_of_several_kinds(self) -> None:
        head = "#!/bin/bash\n#PBS -l select=1:ncpus=8:mpiprocs=2+2:ncpus=4\n"
        found = fields("mpiexec -n 4 python a.py\n", head)
        assert len(found["select"]) == 2 and "nodes" not in found
        assert why("mpiexec -n 4 python a.py\n", head=head) == []
        assert "make 4 ranks" in why("mpiexec -n 6 python a.py\n", head=head)[0]
        assert fields("python driver.py\n", head)["launcher"] == {"driver": True}

    @pytest.mark.parametrize(
        ("head", "name"),
        [
            ("#PBS -J 1-9:2", "PBS_ARRAY_INDEX"),
            ("#PBS -t 1,4", "PBS_ARRAYID"),
            ("#SBATCH -a 1,4", "SLURM_ARRAY_TASK_ID"),
        ],
    )
    def test_members_find_their_number_as_castoff_counts(self, head: str, name: str) -> None:
        body = f"mkdir -p out/${name}\nmpiexec -n 2 python a.py --fold ${{{name}}}\n"
        found = fields(body, f"#!/bin/bash\n{head}\n")
        assert found["setup"] == ["mkdir -p out/$CASTOFF_ARRAY_INDEX"]
        assert found["command"][2] == "exec python a.py --fold ${CASTOFF_ARRAY_INDEX}"
        assert fields(body, f"#!/bin/bash\n{head.split()[0]} -N 2\n")["setup"] == [f"mkdir -p out/${name}"]

    @pytest.mark.parametrize("indices", ["1-10", "0-8:2", "1,4"])
    def test_arrays_with_indices(self, indices: str) -> None:
        head = f"#!/bin/bash\n#SBATCH --array={indices}\n"
        assert fields("python a.py\n", head)["array"] == {"indices": indices}


def test_a_shell_that_is_no_login_shell_is_for_the_profile() -> None:
    assert "shell: /bin/bash" in read_script(HEAD + "srun python a.py\n").profile
    assert read_script(HEAD.replace("bash\n", "bash -l\n", 1) + "srun python a.py\n").profile == {}


def test_lines_from_windows() -> None:
    script = (HEAD + "module load x\nsrun python a.py\n").replace("\n", "\r\n")
    result = read_script(script)
    assert nested(result.fields)["setup"] == ["module load x"]
    assert any("CRLF" in text for text in result.notes[""])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("a\x00b", "is no text"),
        ("#!/usr/bin/env python3\nprint(1)\n", "python3"),
        ("import os\nimport sys\nprint(1)\n", "Python"),
        ('# trains\n\nimport os\nprint("rank", os.environ["RANK"])\n', "Python"),
        (
            "# Imported from a.sbatch.\n#   line 2: #SBATCH -N 2\nname: a\ncommand: [x]\n",
            "is a job file already",
        ),
    ],
)
def test_no_script(text: str, words: str) -> None:
    with pytest.raises(NotAScript, match=words):
        read_script(text)


def test_a_script_for_another_shell() -> None:
    body = "setenv A 1\nsrun python a.py\n"
    head = HEAD.replace("bash", "tcsh")
    assert len(why(body, head=head)) == 2 and all("tcsh" in one for one in why(body, head=head))


class TestMeaning:
    """What would silently become another program, other variables or another order."""

    @pytest.mark.parametrize(
        "lines", ["cd /data || . rc\ncd sub", "if [ -d /d ]; then cd /d; fi\ncd sub", "cd /data && . rc"]
    )
    def test_a_folder_after_one_that_nobody_knows(self, lines: str) -> None:
        found = fields(f"{lines}\nsrun python a.py\n")
        assert "workdir" not in found
        assert found["setup"] == [*lines.split("\n"), "export IMPORTED_DIR=$PWD"]

    def test_a_folder_or_the_end(self) -> None:
        assert fields("cd /data || exit 1\nsrun python a.py\n")["workdir"] == "/data"

    def test_a_group_behind_the_launch_line(self) -> None:
        assert "teardown" not in fields("srun python a.py || { echo failed; exit 1; }\n")
        found = fields("srun python a.py && { cp a b; echo c; }\n")
        assert found["teardown"] == ['if [ "$CASTOFF_EXIT_CODE" = 0 ]; then { cp a b; echo c; }; fi']

    @pytest.mark.parametrize(
        "head", ["#!/bin/bash -e\n#SBATCH -N 2\n", "#!/bin/bash\n#SBATCH -N 2\nset -eu\n"]
    )
    def test_what_follows_a_launch_line_that_ends_the_script(self, head: str) -> None:
        found = fields("srun python a.py\nrm -r old\nmake &\n", head)
        done = 'if [ "$CASTOFF_EXIT_CODE" = 0 ]; then'
        assert found["teardown"] == [f"{done} rm -r old; fi", f"{done}\nmake &\nfi"]
        assert fields("srun python a.py || true\nrm -r old\n", head)["teardown"] == ["rm -r old"]

    def test_a_trap_runs_last(self) -> None:
        body = 'trap "rm -r $D" EXIT\nD=$(mktemp -d)\nsrun python a.py\ncp $D/out .\n'
        assert fields(body)["teardown"] == ["cp $D/out .", "rm -r $D"]

    def test_what_is_exported_already(self) -> None:
        assert fields("PATH=/x:$PATH\nsrun python a.py\n")["setup"] == ["PATH=/x:$PATH"]
        assert fields("set -a\nA=1\nsrun python a.py\n")["env"] == {"A": "1"}
        found = fields("export A=1\nA=2\nsrun python a.py\n")
        assert (found["setup"], "env" in found) == (["export A=1", "A=2"], False)

    def test_what_the_ranks_must_see(self) -> None:
        for line, names in (
            ("read -r A B < x", "A B"),
            ("source rc", "A B"),
            ('printf -v A x; : "${B:=1}"', "A B"),
        ):
            found = fields(f"{line}\nsrun python a.py $A $B\n")
            assert found["setup"][-1] == f"export {names}"

    def test_numbers_that_the_shell_works_out(self) -> None:
        assert fields("N=3\nlet M=N+1\nsrun python a.py $M\n")["setup"][0] == "N=3"

    @pytest.mark.parametrize("around", ["timeout 1h", "numactl -m 0", "/usr/bin/time -v"])
    def test_a_program_around_the_launcher(self, around: str) -> None:
        found = fields(f"{around} srun -n 4 python a.py\n")
        assert (found["command"], found["ranks_per_node"]) == (["python", "a.py"], 2)
        assert [one for one in why(f"{around} srun python a.py\n") if around in one]

    def test_a_text_that_is_evaluated(self) -> None:
        found = fields("eval \"srun python a.py --x '$HOME'\"\n")
        assert found["command"] == ["bash", "-c", "eval \"exec python a.py --x '$HOME'\""]

    @pytest.mark.parametrize(
        ("held", "words"),
        [
            ("a.py --lr 0.1", ["a.py", "--lr", "0.1"]),
            ("a.py --name 'my run'", ["a.py", "--name", "my run"]),
            ("a.py", ["a.py"]),
        ],
    )
    def test_a_variable_in_a_text_that_is_read_again(self, held: str, words: list[str]) -> None:
        """It stands for several words, as with BigScience's `srun bash -c "$LAUNCHER $CMD"`."""
        assert fields(f'CMD="{held}"\nsrun bash -c "python $CMD"\n')["command"] == ["python", *words]
        launcher = "torchrun --nproc_per_node 2 --node_rank \\$SLURM_PROCID"
        found = fields(f'CMD="{held}"\nsrun bash -c "{launcher} $CMD"\n')
        assert found["command"] == ["python", *words] and found["launcher"]["torchrun"] is True

    def test_an_empty_variable_in_a_text_that_is_read_again(self) -> None:
        assert fields('MORE=""\nsrun bash -c "python a.py $MORE"\n')["command"] == ["python", "a.py"]

    @pytest.mark.parametrize("line", ["srun ./a >out.dat", "srun ./a | tee out.dat", "srun ./a >> ./out.dat"])
    def test_output_that_a_later_line_needs(self, line: str) -> None:
        assert " needs " in why(f"{line}\npython fit.py ./out.dat\n")[0]
        assert why(f"{line}\npython fit.py ./out.data\n") == []

    def test_an_empty_array_in_the_place_of_a_program(self) -> None:
        assert fields("A=()\n${A[@]}\nsrun ./a\n")["command"] == ["./a"]

    def test_quotes_of_ansi_c_and_braces(self) -> None:
        for word in ("$'a\\tb'", "x{1..3}"):
            assert fields(f"srun python a.py {word}\n")["setup"][-1].endswith(f'python a.py {word})"')
        assert fields("export A=$'a\\tb'\nsrun python a.py\n")["setup"] == ["export A=$'a\\tb'"]

    def test_several_programs_and_a_code_turned_round(self) -> None:
        assert "several programs" in why("srun -n 2 python a.py : -n 2 python b.py\n")[0]
        assert "turns its exit code round" in why("! srun python a.py\n")[0]

    def test_a_call_of_what_starts_the_ranks(self) -> None:
        body = "run() {\n  srun python a.py\n}\nrun x\n"
        assert "teardown" not in fields(body) and any("it calls the function" in one for one in why(body))

    def test_nothing_follows_exec(self) -> None:
        assert "teardown" not in fields("exec srun python a.py\nrm x\n")


class TestOdd:
    def test_a_byte_order_mark(self) -> None:
        assert fields("srun python a.py\n", "\ufeff" + HEAD)["nodes"] == 2

    def test_one_that_is_too_much(self) -> None:
        for body in (
            "echo " + "$(" * 3000 + ")" * 3000,
            'A0="x x"\n'
            + "".join(f'A{n + 1}="$A{n} $A{n} $A{n} $A{n}"\n' for n in range(30))
            + "srun $A30\n",
        ):
            with pytest.raises(NotAScript):
                read_script(HEAD + body)

    def test_values_that_grow(self) -> None:
        lines = "".join(f"A{n + 1}=$A{n}$A{n}$A{n}$A{n}\n" for n in range(40))
        assert fields(f"A0=xx\n{lines}srun python a.py $A40\n")["command"][0] == "bash"


@pytest.mark.parametrize(("asks", "noted"), [("", True), ("#SBATCH --gpus-per-node=2\n", False)])
def test_a_script_that_asks_for_no_gpus(asks: str, noted: bool) -> None:
    """A site whose nodes have some gives each rank one, unless the job file asks for none."""
    result = read_script(f"#!/bin/bash\n#SBATCH -N 1\n#SBATCH --ntasks-per-node=2\n{asks}srun ./a\n")
    assert any("devices_per_rank: 0" in text for of in result.notes.values() for text in of) == noted
