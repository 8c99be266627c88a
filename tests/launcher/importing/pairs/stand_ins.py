"""What the sandbox holds: stand-ins for all programs of a cluster, a user's files, and little else."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

PYTHON = os.path.realpath(sys._base_executable)  # type: ignore[attr-defined]
"""An interpreter without a virtual environment, which begins sooner."""

PATH = "/stand-ins/bin:/usr/bin:/bin"

COMPILED = "/stand-ins/program_of_any_name.py"
"""Is compiled once, and not by each program."""

_NAMES = re.findall(
    r"\S+",
    """
srun mpirun mpiexec mpiexec.hydra flux torchrun python python3 scontrol squeue sacct scancel sbatch
qsub qstat qdel service services-to-begin conda numactl modulecmd accelerate deepspeed Rscript R
julia matlab nvidia-smi apptainer singularity fusermount3 squashfuse tool prep clean frontend gmx
gmx_mpi nextflow snakemake jupyter dask ray lmp vasp bwa samtools parallel make rsync ssh scp curl
wget pip uv mamba java perl csh tcsh nvcc lscpu free git mail module-load spack
""",
)

_CALLED = "#!/stand-ins/program\n"
_DATE = """#!/bin/sh
case "$*" in *%s* | *-d*) exec /usr/bin/date "$@" ;; esac
exec /usr/bin/date -u -d @1700000000 "$@"
"""

_SLEEP = """#!/bin/sh
if [ -n "${SERVICES-}" ]; then exec services-to-begin; else exec /bin/sleep "$@"; fi
"""
"""What people put behind the start of services, and here waits for just that."""

MODULE = '() {  modulecmd "$@"; LOADED="${LOADED-}${LOADED:+ }$*"; export LOADED; }'
"""The function `module`, as bash hands it on."""

_PROFILE = f"""PATH={PATH}
export PATH LOGIN_PROFILE=yes
module() {{ {MODULE.removeprefix("() { ").removesuffix("}")} }}
export -f module
"""

_CONDA = """conda() {
  case $1 in
    activate) export CONDA_DEFAULT_ENV=$2 CONDA_PREFIX=/opt/conda/envs/$2 ;;
    deactivate) unset CONDA_DEFAULT_ENV CONDA_PREFIX ;;
    *) command conda "$@" ;;
  esac
}
"""


_START = f"""#!{PYTHON} -SE
import sys
sys.path.insert(0, "/stand-ins")
import program_of_any_name
program_of_any_name.main(sys.argv[1:])
"""

SYSTEM = {
    "/stand-ins/program": _START,
    COMPILED: Path(__file__).with_name("program.py").read_text(),
    **{f"/stand-ins/bin/{name}": _CALLED for name in _NAMES},
    "/stand-ins/bin/date": _DATE,
    "/stand-ins/bin/sleep": _SLEEP,
    "/stand-ins/bin/hostname": "#!/bin/sh\ncase $1 in -[iI]*) echo 10.0.0.1 ;; *) echo n1 ;; esac\n",
    "/stand-ins/bin/nproc": "#!/bin/sh\necho ${SLURM_CPUS_ON_NODE:-8}\n",
    "/etc/passwd": "root:x:0:0::/home/u:/bin/bash\nu:x:1000:1000::/home/u:/bin/bash\n",
    "/etc/group": "root:x:0:\nu:x:1000:\n",
    "/etc/hosts": "127.0.0.1 localhost\n" + "".join(f"10.0.0.{at} n{at}\n" for at in range(1, 9)),
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "/etc/profile": _PROFILE,
    "/opt/conda/etc/profile.d/conda.sh": _CONDA,
    "/opt/conda/bin/activate": 'export CONDA_DEFAULT_ENV="$1"\n',
}
"""Files that no script can change."""

_PROJECT = "/home/u/project"

PREPARED = {
    "/home/u/.bashrc": "export FROM_BASHRC=yes\n",
    "/home/u/thesis.tex": "years of work\n",
    "/home/u/other/run.sh": _CALLED,
    **{f"{_PROJECT}/{name}": _CALLED for name in ("prog", "run.sh", "scripts/step", "bin/solver")},
    f"{_PROJECT}/logs/old.out": "old\n",
    f"{_PROJECT}/main.py": "print()\n",
    f"{_PROJECT}/train.py": "print()\n",
    f"{_PROJECT}/scripts/main.py": "print()\n",
    f"{_PROJECT}/params.in": "alpha 1\n",
    f"{_PROJECT}/cmds.txt": "tool first --x 1\ntool second --x '2 3'\ntool third; prep third\n",
    f"{_PROJECT}/samples.txt": "s1\ns2\ns3\n",
    f"{_PROJECT}/env.sh": "export FROM_ENV_SH=$(pwd)\n",
    f"{_PROJECT}/lib.sh": 'greet() { tool greet "$1"; }\nPLAIN=from-lib\n',
    f"{_PROJECT}/venv/bin/activate": "export VIRTUAL_ENV=/home/u/project/venv\n",
    f"{_PROJECT}/res/old.txt": "old\n",
    f"{_PROJECT}/a.fa": "ACGT\n",
    f"{_PROJECT}/b.fa": "TTTT\n",
    "/scratch/u/tmp/one": "1\n",
    "/scratch/u/tmp/two": "2\n",
    "/scratch/u/keep/precious": "do not lose\n",
    "/data/run/prog": _CALLED,
    "/data/run/input.dat": "in\n",
    "/data/raw/r1.dat": "r1\n",
    "/data/raw/r2.dat": "r2\n",
    "/tmp/left": "left\n",
}
"""What a user has, anew for each script."""
