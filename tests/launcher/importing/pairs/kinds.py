"""Kinds of what scripts for sbatch do, each in several forms: on lines of its own, on one, under set -e."""

from __future__ import annotations

from typing import NamedTuple

from tests.launcher.importing.pairs.pair import Original

TWO_NODES = "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n#SBATCH --time=00:10:00\n"
ONE_TASK = "#SBATCH --time=10:00\n"


class Kind(NamedTuple):
    """Lines that belong together."""

    name: str
    body: tuple[str, ...]
    head: str = TWO_NODES
    shebang: str = "#!/bin/bash"
    joined: bool = True
    """Whether they can stand on one line, too."""
    member: int | None = None
    services: int = 0
    parallel: bool = False
    lifted: bool | None = None

    def forms(self) -> list[Original]:
        """The scripts of this kind."""
        ways = {"lines": "\n".join(self.body), "set-e": "\n".join(("set -e", *self.body))}
        if self.joined:
            ways["joined"] = _joined(self.body)
            ways["joined-e"] = f"set -euo pipefail; {_joined(self.body)}"
        return [
            Original(
                f"{self.name}-{way}",
                f"{self.shebang}\n{self.head}\n{text}\n",
                member=self.member,
                services=self.services,
                parallel=self.parallel,
                # What stands on one line with others is one statement after the other as well.
                lifted=self.lifted,
            )
            for way, text in ways.items()
        ]


def _joined(body: tuple[str, ...]) -> str:
    return " ".join(line if line.endswith(("&", "{", "then", "do")) else f"{line};" for line in body)[:-1] + (
        "&" if body[-1].endswith("&") else ""
    )


KINDS = [
    Kind("failing-cd-and-rm", ("cd /absent && rm -rf *", "srun ./prog a"), lifted=False),
    # What loses files where lines change their places
    Kind("assign-then-rm", ("D=/scratch/u/tmp", "rm -rf $D/*", "srun ./prog a")),
    Kind("export-then-rm", ("export D=/scratch/u/tmp", "rm -rf $D/*", "srun ./prog a")),
    Kind("rm-after-launch", ("D=/scratch/u/tmp", "srun ./prog a", "rm -rf $D/*"), lifted=False),
    Kind("cd-that-vanishes", ("cd /scratch/u/tmp", "rm -rf *", "cd /data/run", "./prog x"), lifted=False),
    Kind("make-after-cd", ("cd /scratch/u/tmp", "make all", "cd $SLURM_SUBMIT_DIR", "srun ./prog x")),
    Kind("source-after-cd", ("cd /data/run", "source $SLURM_SUBMIT_DIR/env.sh", "srun ./prog x")),
    Kind("pwd-after-cd", ("cd /data/run", "X=$(pwd)", "cd ..", "srun ./run/prog $X")),
    Kind("cd-and-prog", ("cd /data && python prep.py", "cd /data/run && python a.py"), lifted=False),
    Kind(
        "cp-cd-rm",
        ("cp params.in /scratch/u/tmp", "cd /scratch/u/tmp", "python a.py", "rm -rf *"),
        lifted=False,
    ),
    Kind(
        "failing-cp-cd-rm",
        (
            "W=/scratch/u/new",
            "mkdir -p $W",
            "cp absent.in $W || true",
            "cd $W",
            "tool -o result",
            "cp result* ~",
            "rm -rf *",
        ),
        lifted=False,
    ),
    Kind(
        "cp-that-fails",
        ("cp absent.in /scratch/u/tmp", "cd /scratch/u/tmp", "python a.py", "rm -rf one"),
        lifted=False,
    ),
    Kind("cd-scripts", ("cd scripts", "python main.py"), lifted=False),
    Kind("cd-scripts-srun", ("cd scripts", "srun python main.py")),
    Kind("cd-absent", ("cd /absent", "srun ./prog x")),
    Kind(
        "pushd", ("pushd /data/run >/dev/null", "./prog x", "popd >/dev/null", "srun ./prog y"), lifted=False
    ),
    Kind(
        "mktemp",
        ("W=$(mktemp -d /tmp/w.XXXXXX)", "cp params.in $W/", "cat $W/params.in | tool", "rm -r $W"),
        lifted=False,
    ),
    # Programs at once
    Kind(
        "and-and-wait",
        ("tool a -o a.txt &", "tool b -o b.txt &", "tool c -o c.txt &", "wait"),
        parallel=True,
        lifted=False,
    ),
    Kind("background-then-launch", ("tool watch &", "srun ./prog a"), parallel=True, lifted=False),
    Kind("launch-in-background", ("srun ./prog a &", "wait"), parallel=True, lifted=False),
    Kind(
        "two-launches-at-once",
        ("srun -n 2 ./prog a &", "srun -n 2 ./prog b &", "wait"),
        parallel=True,
        lifted=False,
    ),
    Kind(
        "services",
        (
            "service db &",
            "P=$!",
            "mpiexec -n 2 service worker &",
            "W=$!",
            "sleep 10",
            "frontend run",
            "kill $P $W",
            "wait || true",
        ),
        services=3,
        parallel=True,
        lifted=False,
    ),
    Kind(
        "wait-for-one",
        ("tool a &", "A=$!", "tool b &", "wait $A", "wait", "srun ./prog end"),
        parallel=True,
        lifted=False,
    ),
    Kind(
        "loop-of-background",
        ("for i in 1 2 3; do", "tool $i -o r$i.txt &", "done; wait"),
        parallel=True,
        lifted=False,
    ),
    Kind("xargs", ("cat samples.txt | xargs -n 1 -P 1 tool sample",), lifted=False),
    Kind("parallel", ("parallel -j 4 tool {} < samples.txt",), lifted=False),
    # Products
    Kind("redirect", ("tool align a.fa > out.bam",), head=ONE_TASK, lifted=False),
    Kind("redirect-srun", ("srun ./prog a > out.bam",), lifted=False),
    Kind("redirect-both", ("srun ./prog a > log.$SLURM_JOB_ID 2>&1",), lifted=False),
    Kind("append", ("srun ./prog a >> res/old.txt",), lifted=False),
    Kind(
        "redirect-later-use",
        ("X=out", "tool a > $X.txt", "tool b < $X.txt", "cat *.txt > all", "srun ./prog all"),
        lifted=False,
    ),
    Kind("redirect-res", ("mkdir -p res", "srun ./prog a > res/1.txt", "ls res > listed"), lifted=False),
    Kind("tee", ("srun ./prog a | tee log.txt",), lifted=False),
    Kind("pipe-in", ("cat params.in | srun ./prog a",), lifted=False),
    Kind("stdin-file", ("srun ./prog a < params.in",), lifted=False),
    Kind("pipes", ("sort -r samples.txt | head -2 | tool -o sorted.txt",), lifted=False),
    Kind("exec-redirect", ("exec > run.log 2>&1", "echo begun", "srun ./prog a"), lifted=False),
    Kind("group-redirect", ("{ echo one; srun ./prog a; } > both.log",), lifted=False),
    Kind("subshell", ("(cd /data/run; ./prog inside)", "srun ./prog outside"), lifted=False),
    Kind("option-output", ("srun -o step-%t.txt ./prog a",), lifted=False),
    # Words
    Kind("exported-in-word", ("export MODEL=bert", 'srun python t.py "$MODEL-$(date +%F)"'), lifted=False),
    Kind("exported", ("export DATA=/data/raw", 'srun python t.py --data "$DATA"')),
    Kind("exported-later", ("DATA=/data/raw", "export DATA", 'srun python t.py "--data=$DATA"')),
    Kind("unexported", ("DATA=/data/raw", "srun python t.py --data $DATA")),
    Kind(
        "spaces-in-value", ('export NAMES="a b  c"', "srun python t.py $NAMES", 'srun python u.py "$NAMES"')
    ),
    Kind("split-value", ('export FLAGS="--a 1 --b 2"', "srun python t.py $FLAGS")),
    Kind("empty-value", ("export EMPTY=", "srun python t.py $EMPTY end")),
    Kind("default-value", ("srun python t.py ${LR:-0.1} ${PROJECT_ROOT}/x",)),
    Kind("globs", ("srun python t.py *.fa",), lifted=False),
    Kind("braces", ("srun python t.py {a,b}.txt",)),
    Kind("tilde", ("srun python t.py ~/x",)),
    Kind("quotes", ('srun python t.py \'a $b\' "c d" e\\ f "g\'h"',)),
    Kind("rank-variable", ("srun python t.py $SLURM_PROCID",), lifted=False),
    Kind("arithmetic", ("srun python t.py $((2 * SLURM_NNODES))",), lifted=False),
    Kind("array-words", ("ARGS=(--a 1 --b 'two words')", 'srun python t.py "${ARGS[@]}"'), lifted=False),
    Kind("assign-before-command", ("X=1 Y='2 3' srun ./prog a",)),
    Kind("cmd-variable", ("CMD='srun ./prog a b'", "$CMD"), lifted=False),
    Kind("eval-line", ('CMD=$(sed -n "2p" cmds.txt)', "eval $CMD"), lifted=False),
    Kind(
        "eval-by-index",
        ('CMD=$(sed -n "${SLURM_ARRAY_TASK_ID}p" cmds.txt)', "eval $CMD"),
        head=f"{ONE_TASK}#SBATCH --array=1-3\n",
        member=3,
        lifted=False,
    ),
    Kind(
        "array-of-samples",
        ("mapfile -t S < samples.txt", "tool ${S[$SLURM_ARRAY_TASK_ID]}"),
        head=f"{ONE_TASK}#SBATCH --array=0-2%2\n",
        member=1,
        lifted=False,
    ),
    # Sizes
    Kind("32-tasks", ("./prog a",), head="#SBATCH -n 32\n#SBATCH -t 1:00:00\n", lifted=False),
    Kind("32-tasks-srun", ("srun ./prog a",), head="#SBATCH -n 32\n#SBATCH -t 1:00:00\n"),
    Kind("one-process-of-6-nodes", ("mpirun -np 1 Rscript a.R",), head="#SBATCH -N 6\n#SBATCH -t 1:00:00\n"),
    Kind(
        "julia-p",
        ("julia -p $SLURM_NTASKS a.jl",),
        head="#SBATCH --ntasks=8\n#SBATCH -t 1:00:00\n",
        lifted=False,
    ),
    Kind(
        "cpus-per-task",
        ("srun ./prog $SLURM_CPUS_PER_TASK",),
        head="#SBATCH -N1\n#SBATCH -c 16\n#SBATCH -t 5\n",
    ),
    Kind(
        "threads",
        ("export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK", "srun ./prog a"),
        head="#SBATCH -n 4 -c 8\n",
    ),
    Kind("gres-type", ("srun python t.py",), head=f"{TWO_NODES}#SBATCH --gres=gpu:a100:4\n"),
    Kind(
        "gpus-type",
        ("srun python t.py",),
        head="#SBATCH -N 2 --ntasks-per-node=4 --gpus-per-node=v100:4 -t 5\n",
    ),
    Kind("gpus", ("python t.py",), head="#SBATCH --gpus=2\n#SBATCH --mem=10G\n#SBATCH -t 5\n", lifted=False),
    Kind("exclusive", ("srun ./prog a",), head="#SBATCH -N 2 --exclusive -t 10\n"),
    Kind("mem-per-cpu", ("srun ./prog a",), head="#SBATCH -n 8 --mem-per-cpu=2G -t 10\n"),
    Kind("mem-zero", ("srun ./prog a",), head="#SBATCH -N 1 -n 8 --mem=0 -t 10\n"),
    Kind("hint", ("srun ./prog a",), head="#SBATCH -N 1 -n 8 --hint=nomultithread -t 10\n"),
    Kind("fewer-tasks", ("srun -n 2 ./prog a",), head="#SBATCH -N 2 --ntasks-per-node=4 -t 10\n"),
    Kind("more-nodes", ("srun -N 1 -n 1 ./prog a",), head="#SBATCH -N 4 -t 10\n"),
    Kind("node-range", ("srun ./prog a",), head="#SBATCH -N 2-4 -t 10\n"),
    Kind("srun-options", ("srun --cpu-bind=cores --label --mpi=pmi2 ./prog a",)),
    Kind("srun-cpus", ("srun -n 4 -c 2 --exclusive ./prog a",), head="#SBATCH -N 2 -n 4 -c 2 -t 10\n"),
    Kind("mpirun", ("mpirun ./prog a",)),
    Kind("mpirun-np", ("mpirun -np 4 ./prog a",)),
    Kind("openmpi", ("module load openmpi", "mpirun -np 4 ./prog a")),
    Kind("mpirun-np-variable", ("mpirun -np $SLURM_NTASKS ./prog a",)),
    # Directives
    Kind("no-name", ("echo $SLURM_JOB_NAME > named; srun ./prog a",)),
    Kind("name", ("srun ./prog $SLURM_JOB_NAME",), head=f"#SBATCH -J 'my job'\n{TWO_NODES}"),
    Kind(
        "output",
        ("echo said", "srun ./prog a"),
        head=f"{TWO_NODES}#SBATCH -o logs/%x-%j.out -e logs/%x-%j.err\n",
    ),
    Kind("chdir", ("pwd", "srun ./prog a"), head=f"{TWO_NODES}#SBATCH --chdir=/data/run\n"),
    Kind("chdir-relative", ("pwd", "./step a"), head=f"{TWO_NODES}#SBATCH -D scripts\n", lifted=False),
    Kind("signal", ("srun ./prog a",), head=f"{TWO_NODES}#SBATCH --signal=USR1@300\n"),
    Kind(
        "signal-batch",
        ("trap 'echo stop' USR1", "srun ./prog a"),
        head=f"{TWO_NODES}#SBATCH --signal=B:USR1@300\n",
    ),
    Kind(
        "export-none",
        ("echo ${PROJECT_ROOT-none}", "srun ./prog a"),
        head=f"{TWO_NODES}#SBATCH --export=NONE\n",
    ),
    Kind("export-some", ("srun ./prog a",), head=f"{TWO_NODES}#SBATCH --export=ALL,MODE=fast\n"),
    Kind(
        "account-and-more",
        ("srun ./prog a",),
        head=f"{TWO_NODES}#SBATCH -A abc -p main -q high -C 'a&b' -x n9\n",
    ),
    Kind("mail", ("srun ./prog a",), head=f"{TWO_NODES}#SBATCH --mail-type=END,FAIL --mail-user=u@x.org\n"),
    Kind("requeue", ("srun ./prog a",), head=f"{TWO_NODES}#SBATCH --requeue\n"),
    Kind("after-command", ("srun ./prog a", "#SBATCH --nodes=8", "./prog b"), joined=False, lifted=False),
    Kind("odd-directives", ("srun ./prog a",), head=f"##SBATCH --nodes=9\n# SBATCH --nodes=9\n{TWO_NODES}"),
    Kind("directive-comment", ("srun ./prog a",), head="#SBATCH --nodes=2 # two\n#SBATCH\t-t\t10\n"),
    # Ends
    Kind("last-fails", ("srun ./prog a", "tool code=3"), lifted=False),
    Kind("launch-fails", ("srun ./prog code=4",)),
    Kind("launch-fails-in-the-middle", ("srun ./prog code=4", "tool after"), lifted=False),
    Kind(
        "exit-in-the-middle",
        ("tool before", "if [ -e params.in ]; then exit 3; fi", "srun ./prog never"),
        lifted=False,
    ),
    Kind("exit-3", ("srun ./prog a", "exit 3"), lifted=False),
    Kind("exit-status", ("srun ./prog code=2 || R=$?", "tool copy", "exit $R"), lifted=False),
    Kind(
        "false-before",
        ("false || true", "ls /absent 2>/dev/null || tool absent", "srun ./prog a"),
        lifted=False,
    ),
    Kind("failing-line-before", ("mkdir /data/raw", "srun ./prog a")),
    Kind("last-cleans", ("python work.py", "fusermount3 -u /tmp/m"), lifted=False),
    Kind("launch-then-clean", ("srun ./prog work", "clean -a"), lifted=False),
    Kind("launch-then-echo", ("srun ./prog work", "echo done", "date"), lifted=False),
    Kind("copy-back", ("srun ./prog -o r.txt", "cp r.txt /data/", "rm r.txt"), lifted=False),
    Kind("or-exit", ("srun ./prog code=1 || exit 7", "tool never"), lifted=False),
    Kind("exec", ("exec srun ./prog a",)),
    Kind("not-found", ("srun ./prog a", "no-such-program"), lifted=False),
    # Frameworks that start their own workers
    Kind(
        "plain-python",
        ("python train.py --devices 2",),
        head="#SBATCH -N1 --gpus-per-node=2 -t 5\n",
        lifted=False,
    ),
    Kind(
        "lightning-srun",
        ("srun python train.py",),
        head="#SBATCH -N2 --ntasks-per-node=4 --gpus-per-node=4 -t 5\n",
    ),
    Kind(
        "accelerate",
        ("accelerate launch --num_processes 4 t.py",),
        head="#SBATCH --gpus=4 -t 5\n",
        lifted=False,
    ),
    Kind("deepspeed", ("deepspeed --num_gpus 4 t.py",), head="#SBATCH --gpus=4 -t 5\n", lifted=False),
    Kind(
        "torchrun-alone",
        ("torchrun --nproc_per_node=4 t.py --lr 1",),
        head="#SBATCH -N1 --gpus-per-node=4 -c 16 -t 5\n",
    ),
    # The shell's own
    Kind("function", ("greet() { tool greet $1; }", "greet world", "srun ./prog a"), lifted=False),
    Kind("function-of-launch", ("run() { srun ./prog $1; }", "run a"), lifted=False),
    Kind("source-lib", (". ./lib.sh", "greet world", "srun ./prog $PLAIN"), lifted=False),
    Kind("trap-exit", ("trap 'tool bye' EXIT", "srun ./prog a"), lifted=False),
    Kind("trap-err", ("trap 'tool bad' ERR", "false || true", "srun ./prog a"), lifted=False),
    Kind("set-x", ("set -x", "srun ./prog a"), lifted=False),
    Kind("set-u", ("set -u", "srun ./prog ${ABSENT-none}")),
    Kind("unset-variable", ("set -u", "echo $ABSENT", "srun ./prog never"), lifted=None),
    Kind("pipefail", ("set -o pipefail", "tool code=5 | cat", "srun ./prog a"), lifted=False),
    Kind("dollar-zero", ('echo "$(basename $0)" "$#"', "srun ./prog a")),
    Kind(
        "bash-source",
        ('D=$(dirname "${BASH_SOURCE[0]}")', "ls $D/slurm_script >/dev/null", "srun ./prog a"),
        lifted=False,
    ),
    Kind("positional", ('srun ./prog "${1:-none}" "$@"',), lifted=False),
    Kind("set-positional", ("set -- a b", 'tool "$2"', 'srun ./prog "$@"'), lifted=False),
    Kind(
        "shopt", ("shopt -s nullglob", "for f in *.none; do", "tool $f", "done; srun ./prog a"), lifted=False
    ),
    Kind("umask", ("umask 077", "tool -o secret", "srun ./prog a"), lifted=None),
    Kind(
        "if-launch",
        ("if [ $SLURM_NNODES -gt 1 ]; then", "srun ./prog many", "else srun ./prog one", "fi"),
        lifted=False,
    ),
    Kind("loop-of-srun", ("for i in 1 2 3; do", "srun ./prog $i", "done"), lifted=False),
    Kind("while-read", ("while read -r s; do", "srun ./prog $s", "done < samples.txt"), lifted=False),
    Kind(
        "while-read-null", ("while read -r s; do", "tool $s < /dev/null", "done < samples.txt"), lifted=False
    ),
    Kind(
        "case", ('case "$SLURM_NNODES" in 2) srun ./prog two ;; *) srun ./prog other ;; esac',), lifted=False
    ),
    Kind("alias", ("shopt -s expand_aliases", "alias t='tool aliased'", "eval t"), lifted=False),
    Kind("read-file", ("X=$(<params.in)", 'srun ./prog "$X"'), lifted=False),
    Kind("export-substitution", ("export N=$(wc -l < samples.txt)", 'srun ./prog "$N"')),
    Kind("several-launches", ("srun ./prog a", "srun ./prog b"), lifted=False),
    Kind("prep-then-launch", ("python prep.py", "srun ./prog b")),
    Kind(
        "submits-another",
        ("srun ./prog a", "sbatch --dependency=afterok:$SLURM_JOB_ID next.sh"),
        lifted=False,
    ),
    Kind(
        "tools-of-slurm",
        ("scontrol show job $SLURM_JOB_ID > job.txt", "squeue -u $USER", "srun ./prog a"),
        lifted=False,
    ),
    Kind("hosts", ("scontrol show hostnames $SLURM_JOB_NODELIST > hosts", "srun ./prog a"), lifted=False),
    Kind("time", ("TIMEFORMAT=", "time tool a", "srun ./prog a"), lifted=False),
    Kind("env-dump", ("env | grep ^SLURM_ | grep -vc EXPORT_ENV | tool", "srun ./prog a"), lifted=False),
    Kind("nohup", ("nohup tool a > no.log 2>&1 &", "wait", "srun ./prog b"), parallel=True, lifted=False),
    Kind("modules", ("module purge", "module load gcc/12 cuda", "srun ./prog a"), lifted=True),
    Kind("conda", ("source /opt/conda/etc/profile.d/conda.sh", "conda activate ml", "srun python t.py")),
    Kind(
        "conda-hook",
        ('eval "$(conda shell.bash hook)"', "conda activate ml", "srun python t.py"),
        lifted=None,
    ),
    Kind("venv", ("source venv/bin/activate", "srun python t.py --lr 0.1"), lifted=True),
    Kind(
        "echo-and-date", ("echo begun on $(hostname)", "date", "nvidia-smi", "srun python t.py"), lifted=None
    ),
    Kind("cd-submit-dir", ("cd $SLURM_SUBMIT_DIR", "srun ./prog a")),
    Kind(
        "mkdir-and-ulimit", ("mkdir -p res/new", "ulimit -s unlimited || true", "srun ./prog a"), lifted=None
    ),
    # Forms
    Kind("sh", ("srun ./prog a", "echo end"), shebang="#!/bin/sh", lifted=None),
    Kind("login-shell", ("echo ${LOGIN_PROFILE-no}", "srun ./prog a"), shebang="#!/bin/bash -l"),
    Kind(
        "login-shell-kept", ("tool ${LOGIN_PROFILE-no}", "srun ./prog a > r"), shebang="#!/bin/bash --login"
    ),
    Kind("shebang-e", ("false", "tool never"), shebang="#!/bin/bash -e", lifted=False),
    Kind("shebang-env", ("tool a", "srun ./prog a > r"), shebang="#!/usr/bin/env bash", lifted=False),
    Kind("csh", ("setenv A 1", "srun ./prog a"), shebang="#!/stand-ins/bin/csh", lifted=False),
    Kind("python", ("import os", "print(1)"), shebang="#!/usr/bin/env python3", lifted=False),
    Kind(
        "non-ascii",
        ("# Größe: „naïve“ — ✓", "export NAME='Žluťoučký kůň'", 'srun ./prog "$NAME" ü'),
        joined=False,
    ),
    Kind(
        "odd-comments",
        ("# it's `a` $(comment) \"here", "srun ./prog 'a#b' a#b # end's", "# 'last"),
        joined=False,
    ),
    Kind("tabs", ("\ttool\ta  ", "  srun\t./prog   a\tb  "), lifted=None),
    Kind("continued", ("srun \\", "  --label \\", "  ./prog a \\", "  b"), joined=False),
    Kind(
        "here-document",
        ("tool read <<EOF", "in $SLURM_JOB_ID", "EOF", "srun ./prog a"),
        joined=False,
        lifted=False,
    ),
    Kind("here-string", ('tool read <<< "text $SLURM_JOB_ID"', "srun ./prog a"), lifted=False),
    Kind(
        "written-config",
        ("cat > conf.ini <<'EOF'", "[x]", "home = $HOME # srun", "EOF", "srun ./prog conf.ini"),
        joined=False,
        lifted=False,
    ),
    Kind("no-end-of-line-words", ("srun ./prog a;",), joined=False),
    Kind("empty-lines", ("", "", "srun ./prog a", "", ""), joined=False),
    Kind(
        "mark-of-castoff",
        ("cat <<'CASTOFF_SCRIPT' | tool", "x", "CASTOFF_SCRIPT", "tool after"),
        joined=False,
        lifted=False,
    ),
]


MOST_DANGEROUS = 35
"""The first ones, which lose files or results where a line changes its place."""


def originals() -> list[Original]:
    """Every kind: those that are dangerous in two forms, others in one."""
    found = []
    for at, kind in enumerate(KINDS):
        forms = kind.forms()
        found.append(forms[at % len(forms)])
        if at < MOST_DANGEROUS:
            found.append(forms[(at + 2) % len(forms) if len(forms) > 2 else 1 - at % 2])
    return found


def other_forms() -> list[Original]:
    """All others."""
    names = {one.name for one in originals()}
    return [form for kind in KINDS for form in kind.forms() if form.name not in names]
