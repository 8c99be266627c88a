"""Scripts for qsub and for flux batch."""

from __future__ import annotations

from tests.launcher.importing.pairs.pair import Original

_PBS_BODIES: dict[str, tuple[str, bool]] = {
    # Each with whether it can be lifted at all
    "cd-and-mpiexec": ("cd $PBS_O_WORKDIR\nmpiexec -n 8 ./prog a", True),
    "cd-quoted": ('cd "${PBS_O_WORKDIR}" || exit 1\nmodule load mpi\nmpiexec -n 8 ./prog a', True),
    "no-cd": ("pwd\n./project/prog a", False),
    "no-cd-relative-rm": ("tool a -o kept.txt\nrm -f *.txt\nls", False),
    "later-cd": ("tool first -o here.txt\ncd $PBS_O_WORKDIR\n./prog a", False),
    "nodefile": ("cd $PBS_O_WORKDIR\nN=$(wc -l < $PBS_NODEFILE)\nmpiexec -n $N ./prog a", False),
    "nodefile-sorted": (
        "cd $PBS_O_WORKDIR\nsort -u $PBS_NODEFILE > h\nmpiexec -f h -n 2 ./prog a",
        False,
    ),
    "hostfile": ("cd $PBS_O_WORKDIR\nmpirun -hostfile $PBS_NODEFILE -np 8 ./prog a", True),
    "ppn": ("cd $PBS_O_WORKDIR\nmpiexec -n 8 -ppn 4 ./prog a", True),
    "mpich": ("cd $PBS_O_WORKDIR\nmodule load mpich\nmpiexec -n 8 -ppn 4 ./prog a", True),
    "mpich-all": ("cd $PBS_O_WORKDIR\nmodule load mpich\nexport A='1 2'\nmpiexec -n 8 ./prog \"$A\"", True),
    "openmpi": ("cd $PBS_O_WORKDIR\nmodule load openmpi\nmpirun -n 8 --map-by ppr:4:node ./prog a", True),
    "pals": ("cd $PBS_O_WORKDIR\nmodule load cray-pals\nmpiexec -n 8 --ppn 4 --depth 1 ./prog a", True),
    "bare-mpiexec": ("cd $PBS_O_WORKDIR\nmpiexec ./prog a", True),
    "one-process": ("cd $PBS_O_WORKDIR\nmpiexec -n 1 Rscript a.R", True),
    "redirect": ("cd $PBS_O_WORKDIR\nmpiexec -n 8 ./prog a > out.txt", False),
    "pipe": ("cd $PBS_O_WORKDIR\nmpiexec -n 8 ./prog a | tee out.txt", False),
    "background": ("cd $PBS_O_WORKDIR\ntool a -o 1 &\ntool b -o 2 &\nwait", False),
    "exported": ("cd $PBS_O_WORKDIR\nexport DATA=/data/raw\nmpiexec -n 8 python t.py --data $DATA", True),
    "scratch": (
        "W=/scratch/u/$PBS_JOBID\nmkdir -p $W && cd $W\ncp $PBS_O_WORKDIR/params.in .\n"
        "tool params.in -o r.txt\n"
        "cp r.txt $PBS_O_WORKDIR\ncd ~ && rm -rf $W",
        False,
    ),
    "rm-in-scratch": ("cd /scratch/u/tmp\nrm -rf *\ncd $PBS_O_WORKDIR\nmpiexec -n 8 ./prog a", False),
    "failing-cd": ("cd /absent\nrm -f one\ntool a", False),
    "exit-3": ("cd $PBS_O_WORKDIR\nmpiexec -n 8 ./prog a\nexit 3", False),
    "trap": ("trap 'tool bye' EXIT\ncd $PBS_O_WORKDIR\nmpiexec -n 8 ./prog a", False),
    "function": ("f() { tool $1; }\ncd $PBS_O_WORKDIR\nf a\nmpiexec -n 8 ./prog a", False),
    "conda": (
        "cd $PBS_O_WORKDIR\nsource /opt/conda/etc/profile.d/conda.sh\n"
        "conda activate ml\nmpiexec -n 8 python t.py",
        True,
    ),
    "workdir-in-words": ("cd $PBS_O_WORKDIR\nmpiexec -n 8 ./prog $PBS_O_WORKDIR/x", True),
    "job-name": ("cd $PBS_O_WORKDIR\nmpiexec -n 8 ./prog $PBS_JOBNAME > $PBS_JOBNAME.txt", False),
    "submits": ("cd $PBS_O_WORKDIR\ntool a\nqsub -W depend=afterok:$PBS_JOBID next.pbs", False),
    "here-document": ("cd $PBS_O_WORKDIR\ntool <<EOF\nin $PBS_JOBID\nEOF", False),
}

_SELECT = "#PBS -l select=2:ncpus=4:mpiprocs=4\n#PBS -l walltime=01:00:00\n"

_PBS_HEADS = {
    "plain": _SELECT,
    "named": "#PBS -N myjob\n#PBS -q workq\n#PBS -A proj\n" + _SELECT,
    "joined": "#PBS -j oe\n#PBS -o out.log\n" + _SELECT,
    "everything-handed-on": "#PBS -V\n" + _SELECT,
}

_PBS_OTHERS = {
    "nodes-ppn": "#PBS -l nodes=2:ppn=4\n#PBS -l walltime=1:00:00\n",
    "gpus": "#PBS -l select=2:ncpus=8:ngpus=2:mpiprocs=2:mem=20gb\n#PBS -l walltime=1:00:00\n",
    "one-chunk": "#PBS -l select=1:ncpus=16:mem=8gb\n#PBS -l walltime=30:00\n",
    "ncpus": "#PBS -l ncpus=8\n#PBS -l mem=4gb\n#PBS -l walltime=1:00:00\n",
    "place": "#PBS -l select=2:ncpus=4:mpiprocs=4\n#PBS -l place=scatter:excl\n#PBS -l walltime=1:00:00\n",
    "some-variables": "#PBS -v MODE=fast,PROJECT_ROOT\n" + _SELECT,
    "threads": "#PBS -l select=2:ncpus=8:mpiprocs=2:ompthreads=4\n#PBS -l walltime=1:00:00\n",
    "error-file": "#PBS -o out.log\n#PBS -e err.log\n#PBS -m abe\n#PBS -M u@x.org\n" + _SELECT,
    "no-rerun": "#PBS -r n\n" + _SELECT,
    "no-directive-of-size": "#PBS -l walltime=1:00:00\n",
}

_PBS_ARRAY = (
    "#!/bin/bash\n#PBS -J 1-3\n#PBS -l select=1:ncpus=2\n#PBS -l walltime=1:00:00\ncd $PBS_O_WORKDIR\n"
    'CMD=$(sed -n "${PBS_ARRAY_INDEX}p" cmds.txt)\neval $CMD\n'
)


def pbs() -> list[Original]:
    """For qsub."""
    found = []
    heads = list(_PBS_HEADS.items())
    for at, (name, (body, liftable)) in enumerate(_PBS_BODIES.items()):
        for number in (0, 1 + at % (len(heads) - 1)) if at % 4 == 0 else (at % len(heads),):
            title, head = heads[number]
            found.append(
                Original(
                    f"{name}-{title}.pbs",
                    f"#!/bin/bash\n{head}\n{body}\n",
                    "pbs",
                    parallel=name == "background",
                    lifted=None if liftable else False,
                )
            )
    for name, head in _PBS_OTHERS.items():
        for kind, body in {
            "mpi": "cd $PBS_O_WORKDIR\nmpiexec ./prog a",
            "serial": "cd $PBS_O_WORKDIR\n./prog a > r",
        }.items():
            found.append(Original(f"{name}-{kind}.pbs", f"#!/bin/bash\n{head}\n{body}\n", "pbs"))
    array = [Original(f"array-{at}.pbs", _PBS_ARRAY, "pbs", member=at, lifted=False) for at in (1, 2, 3)]
    shell = [
        Original(
            "sh.pbs", f"#!/bin/sh\n#PBS -S /bin/bash\n{_SELECT}\ncd $PBS_O_WORKDIR\n./prog a > r\n", "pbs"
        ),
        Original("no-shebang.pbs", f"{_SELECT}\ncd $PBS_O_WORKDIR\n./prog a > r\n", "pbs"),
    ]
    return [*found, *array, *shell]


_FLUX_BODIES: dict[str, tuple[str, bool]] = {
    "run": ("flux run -N2 -n8 ./prog a", True),
    "run-options": ("flux run --nodes=2 --ntasks=8 --cores-per-task=2 --label-io ./prog a", True),
    "fewer": ("flux run -n 2 ./prog a", True),
    "exported": ("export DATA=/data/raw\nflux run -N2 -n8 python t.py --data $DATA", True),
    "modules": ("module load mpi\nflux run -N2 -n8 ./prog a", True),
    "venv": ("source venv/bin/activate\nflux run -N2 -n8 python t.py --lr 0.1", True),
    "two-runs": ("flux run -n4 ./prog a\nflux run -n4 ./prog b", False),
    "background": ("flux run -n4 ./prog a &\nflux run -n4 ./prog b &\nwait", False),
    "loop": ("for i in 1 2 3; do flux run -n2 ./prog $i; done", False),
    "redirect": ("flux run -N2 -n8 ./prog a > out.txt", False),
    "pipe": ("flux run -N2 -n8 ./prog a | tee out.txt", False),
    "cd": ("cd /data/run\nflux run -n2 ./prog a", False),
    "cd-and-rm": ("cd /scratch/u/tmp\nrm -rf *\ncd /data/run\nflux run -n2 ./prog a", False),
    "assign-then-rm": ("D=/scratch/u/tmp; rm -rf $D/*; flux run -n2 ./prog a", False),
    "function": ("f() { tool $1; }\nf a\nflux run -n8 ./prog a", False),
    "trap": ("trap 'tool bye' EXIT\nflux run -n8 ./prog a", False),
    "exit-3": ("flux run -n8 ./prog a\nexit 3", False),
    "fails": ("flux run -n8 ./prog code=4", True),
    "last-cleans": ("flux run -n8 ./prog a\nclean -a", False),
    "submit": ("flux submit -n2 ./prog a\nflux queue drain", False),
    "serial": ("./prog a > r.txt", False),
    "python": ("python train.py", False),
    "set-e": ("set -e\nmkdir -p res\nflux run -n8 ./prog a", True),
    "pipefail": ("set -euo pipefail\ntool a | cat > r\nflux run -n8 ./prog a", False),
    "here-document": ("tool <<EOF\nx\nEOF\nflux run -n8 ./prog a", False),
    "array-words": ("A=(--x 1)\nflux run -n8 ./prog ${A[@]}", False),
    "eval": ("CMD=$(sed -n 2p cmds.txt)\neval $CMD", False),
    "and": ("cd /data && python prep.py\ncd /data/run && ./prog x", False),
}

_FLUX_HEADS = {
    "plain": "# flux: -N 2\n# flux: -n 8\n# flux: -t 30m\n",
    "named": "#flux: --job-name=mine\n#flux: --nodes=2 --nslots=8 -c 2\n#flux: --time-limit=1h\n",
    "output": "#flux: -N2 -n8 -t 10m\n#flux: --output=out.{{id}}.log\n",
}


def flux() -> list[Original]:
    """For flux batch."""
    heads = list(_FLUX_HEADS.items())
    return [
        Original(
            f"{name}-{title}.flux",
            f"#!/bin/bash\n{head}\n{body}\n",
            "flux",
            parallel=name in ("background", "submit"),
            lifted=None if liftable else False,
        )
        for at, (name, (body, liftable)) in enumerate(_FLUX_BODIES.items())
        for title, head in ((heads[0], heads[1 + at % 2]) if at % 4 == 0 else (heads[at % 3],))
    ]


def originals() -> list[Original]:
    """All of them."""
    return [*pbs(), *flux()]
