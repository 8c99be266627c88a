"""Whole scripts for sbatch, of shapes that many people's have."""

from __future__ import annotations

from tests.launcher.importing.pairs.pair import Original

GROMACS = """#!/bin/bash
#SBATCH --job-name=md
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=2
#SBATCH --time=1-00:00:00
#SBATCH --partition=main

module purge
module load gromacs/2023

export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK

gmx grompp -f md.mdp -c npt.gro -p topol.top -o md.tpr
srun gmx_mpi mdrun -deffnm md -ntomp ${OMP_NUM_THREADS} -cpi md.cpt -maxh 23.5
"""

NEXTFLOW = """#!/bin/bash -l
#SBATCH -J nf-head
#SBATCH -c 2
#SBATCH --mem=8G
#SBATCH -t 48:00:00
#SBATCH -o nf-%j.log

module load java nextflow
export NXF_OPTS='-Xms1g -Xmx4g'
nextflow run nf-core/rnaseq -profile singularity \\
    --input samples.csv \\
    --outdir res \\
    -resume
"""

SNAKEMAKE = """#!/bin/bash
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=64GB
#SBATCH --time=10:00:00

source /opt/conda/etc/profile.d/conda.sh
conda activate snakemake
cd "$SLURM_SUBMIT_DIR" || exit 1
snakemake --cores "$SLURM_CPUS_PER_TASK" --use-conda --rerun-incomplete all 2> snake.err
"""

R_ARRAY = """#!/bin/bash
#SBATCH --job-name=sim
#SBATCH --array=1-100%10
#SBATCH --output=logs/sim_%A_%a.out
#SBATCH --mem-per-cpu=4G
#SBATCH --time=02:00:00

module load R/4.3
SEED=$((1000 + SLURM_ARRAY_TASK_ID))
Rscript --vanilla sim.R "$SLURM_ARRAY_TASK_ID" $SEED > "res/$SLURM_ARRAY_TASK_ID.csv"
"""

DDP = """#!/bin/bash
#SBATCH --job-name=ddp
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --output=%x_%j.out

export MASTER_PORT=$(expr 10000 + $(echo -n $SLURM_JOB_ID | tail -c 4))
export WORLD_SIZE=$(($SLURM_NNODES * $SLURM_NTASKS_PER_NODE))
master_addr=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR=$master_addr
echo "MASTER_ADDR="$MASTER_ADDR

module load pytorch
srun python train.py --epochs 10
"""

SIMPLE_DDP = """#!/bin/bash
#SBATCH --job-name=ddp
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00

module load pytorch
export DATA=/data/raw
srun python train.py --epochs 10 --lr 0.1
"""

TORCHRUN = """#!/bin/bash
#SBATCH --job-name=rdzv
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=04:00:00

nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head_node=${nodes[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)

echo Node IP: $head_node_ip
export LOGLEVEL=INFO

srun torchrun \\
--nnodes 2 \\
--nproc_per_node 4 \\
--rdzv_id $SLURM_JOB_ID \\
--rdzv_backend c10d \\
--rdzv_endpoint $head_node_ip:29500 \\
train.py 50 10
"""

SIMPLE_TORCHRUN = """#!/bin/bash
#SBATCH --job-name=one-node
#SBATCH --nodes=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --time=04:00:00

module load pytorch
torchrun --standalone --nproc_per_node=4 train.py --lr 0.1
"""

APPTAINER = """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gres=gpu:1
#SBATCH --time=01:00:00
#SBATCH --mem=32G

export APPTAINERENV_SEED=7
apptainer exec --nv --bind /data:/data,/scratch:/scratch pytorch.sif \\
    python train.py --data /data/raw --out "res/$SLURM_JOB_ID"
"""

APPTAINER_MPI = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --time=01:00:00

module load openmpi
srun --mpi=pmix apptainer exec lammps.sif lmp -in in.melt
"""

HYBRID = """#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks=16
#SBATCH --cpus-per-task=8
#SBATCH --time=00:30:00
#SBATCH --exclusive

module load openmpi vasp
export OMP_NUM_THREADS=8 OMP_PLACES=cores OMP_PROC_BIND=close
ulimit -s unlimited

mpirun -np $SLURM_NTASKS --map-by ppr:4:node:PE=8 --bind-to core vasp
"""

JUPYTER = """#!/bin/bash
#SBATCH --job-name=jupyter
#SBATCH --cpus-per-task=4
#SBATCH --time=08:00:00
#SBATCH --output=jupyter-%j.log

XDG_RUNTIME_DIR=""
node=$(hostname -s)
user=$(whoami)
port=8888
echo -e "ssh -N -L ${port}:${node}:${port} ${user}@login"
jupyter notebook --no-browser --port=${port} --ip=${node}
"""

DASK = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --time=01:00:00

F=/tmp/scheduler.json
service scheduler --scheduler-file $F &
S=$!
srun service worker --scheduler-file $F &
sleep 10
frontend --scheduler-file $F -o result.txt
kill $S
"""

SCRATCH = """#!/bin/bash
#SBATCH -J scratch
#SBATCH -n 1
#SBATCH -t 12:00:00

set -euo pipefail
WORK=/scratch/u/$SLURM_JOB_ID
mkdir -p "$WORK"
trap 'cp -r "$WORK"/result* "$SLURM_SUBMIT_DIR"/ || true; rm -rf "$WORK"' EXIT
cp params.in "$WORK"
cd "$WORK"
tool run params.in -o result.txt
"""

PIPELINE = """#!/usr/bin/bash
#SBATCH --cpus-per-task=8
#SBATCH --mem=16G
#SBATCH --time=6:00:00

module load bwa samtools
REF=a.fa
for FQ in *.fa; do
    S=$(basename "$FQ" .fa)
    [ -e res/$S.bam ] && continue
    bwa mem -t $SLURM_CPUS_PER_TASK $REF $FQ | samtools sort -@ 4 -o res/$S.bam -
    samtools index res/$S.bam
done
cat res/*.bam > res/all.txt
rm -f res/*.bam
"""

RESUBMITTING = """#!/bin/bash
#SBATCH --job-name=chain
#SBATCH --time=01:00:00
#SBATCH --signal=B:USR1@120

again() { echo again; sbatch "$SLURM_SUBMIT_DIR/chain.sh"; exit 0; }
trap again USR1
tool step -o state &
wait $!
[ -e state ] && echo finished
"""

LIGHTNING = """#!/bin/bash -l
#SBATCH --nodes=2
#SBATCH --gres=gpu:a100:2
#SBATCH --ntasks-per-node=2
#SBATCH --mem=0
#SBATCH --time=0-02:00:00
#SBATCH --signal=SIGUSR1@90

source activate ml || true
export NCCL_DEBUG=INFO
export PYTHONFAULTHANDLER=1
srun python3 train.py
"""

RAY = """#!/bin/bash
#SBATCH --nodes=3
#SBATCH --tasks-per-node=1
#SBATCH --cpus-per-task=5
#SBATCH --time=00:30:00

set -x
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
nodes_array=($nodes)
head_node=${nodes_array[0]}
port=6379
srun --nodes=1 --ntasks=1 -w "$head_node" service head --port=$port --block &
worker_num=$((SLURM_JOB_NUM_NODES - 1))
for ((i = 1; i <= worker_num; i++)); do
    srun --nodes=1 --ntasks=1 -w "${nodes_array[$i]}" service --address "$head_node:$port" &
done
sleep 5
python -u tune.py "$SLURM_CPUS_PER_TASK"
"""

MATLAB = """#!/bin/sh
#SBATCH -c 4
#SBATCH --licenses=matlab:1
#SBATCH -t 30

module load matlab
matlab -nodisplay -r "try, run('a.m'), catch, exit(1), end, exit"
echo finished
"""

MULTI_STEP = """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=4
#SBATCH --time=00:20:00

function step() {
  local name=$1; shift
  echo "== $name"
  srun --exact -n 1 "$@" > "res/$name.log" 2>&1
}
step one tool first
step two tool second code=2 || echo "two failed with $?"
for n in 1 2; do step "par$n" tool $n & done
wait
ls res
"""

WANDB = """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --gpus=h100:1
#SBATCH --time=3:00:00

export WANDB_MODE=offline
export HF_HOME=/scratch/u/hf TOKENIZERS_PARALLELISM=false
source venv/bin/activate
python train.py --model bert-base-uncased --batch-size 32 --run "run-${SLURM_JOB_ID}"
deactivate || true
"""

SHAPES = {
    **{"gromacs": GROMACS, "nextflow": NEXTFLOW, "snakemake": SNAKEMAKE, "ddp": DDP, "torchrun": TORCHRUN},
    **{"apptainer": APPTAINER, "apptainer-mpi": APPTAINER_MPI, "hybrid": HYBRID, "jupyter": JUPYTER},
    **{"scratch": SCRATCH, "pipeline": PIPELINE, "lightning": LIGHTNING, "matlab": MATLAB, "wandb": WANDB},
    "chain": RESUBMITTING,
}


def originals() -> list[Original]:
    """The shapes, with and without what their authors might as well have written."""
    plain = [Original(f"{name}.sbatch", text) for name, text in SHAPES.items()]
    windowed = [
        Original(f"{name}-tidy.sbatch", text.replace("#SBATCH --", "#SBATCH  --") + "\n\n# end\n")
        for name, text in SHAPES.items()
    ]
    return [
        *plain,
        *windowed,
        Original("simple-ddp.sbatch", SIMPLE_DDP, lifted=True),
        Original("simple-torchrun.sbatch", SIMPLE_TORCHRUN, lifted=True),
        Original("r-array.sbatch", R_ARRAY, member=7, lifted=False),
        Original("dask.sbatch", DASK, services=5, parallel=True, lifted=False),
        Original("ray.sbatch", RAY, services=3, parallel=True, lifted=False),
        Original("steps.sbatch", MULTI_STEP, parallel=True, lifted=False),
    ]
