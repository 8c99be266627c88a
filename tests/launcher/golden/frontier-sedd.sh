#!/bin/bash -l
#SBATCH --job-name=uniref50
#SBATCH --account=abc123
#SBATCH --partition=extended
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --time=24:00:00
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --signal=B:USR2@300
#SBATCH --requeue
#SBATCH --export=NIL
#SBATCH --network=disable_rdzv_get

# uniref50 on frontier: 16 ranks, 8 on each of 2 nodes.
# 8 ranks per node: the node has 8 devices
# srun shows each rank its own devices alone: the first is 0 (CASTOFF_DEVICE)
# OMP_NUM_THREADS=7: a rank's cores
set -euo pipefail
# First of all, castoff's functions: they stand below the last line that begins with "# === castoff".
if ! castoff_below=$(LC_ALL=C awk '/^# === castoff / { last = NR } { line[NR] = $0 }
    END { while (last && ++i <= NR) print (i > last ? line[i] : "") }' <"$0") ||
  [[ $castoff_below != *$'\ncastoff_loaded=1' ]]; then
  echo "castoff: the functions at the end of $0 cannot be read: is all of it there?" >&2
  exit 1
fi
eval "${castoff_below:LINENO-1}" # so that their errors name the right lines

castoff_nodes=2 castoff_ranks=16 castoff_ranks_per_node=8 castoff_full_nodes=2
castoff_walltime=86400 castoff_grace=300 # seconds; the program is asked to stop in its last ones
castoff_device_step=0
castoff_requeue_max=3
export CASTOFF_ARRAY_COUNT=1
castoff_begin # the run directory and its records; what asks this job to stop

# --- Setup
set +u # module files and activate scripts read variables that are not set
export MIOPEN_USER_DB_PATH=/tmp/miopen-$SLURM_JOB_ID MIOPEN_CUSTOM_CACHE_DIR=/tmp/miopen-$SLURM_JOB_ID
module load PrgEnv-gnu/8.7.0 cpe/26.03 miniforge3/23.11.0-0
module load rocm/7.1.1 rccl-net-plugin craype-accel-amd-gfx90a
export LD_LIBRARY_PATH=$CRAY_LD_LIBRARY_PATH:$LD_LIBRARY_PATH
conda activate castoff-env
set -u

# --- Environment of the ranks
castoff_forget # what a parent's ranks were told must not reach ours
export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
export FI_CXI_RDZV_PROTO=alt_read
export NCCL_DEBUG=WARN
export OMP_NUM_THREADS=7
castoff_rendezvous # MASTER_ADDR and MASTER_PORT

# --- Start
castoff_start srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --cpus-per-task=7 --gpus-per-task=1 \
  --gpu-bind=closest --kill-on-bad-exit=1 --wait=0 --export=ALL \
  "$castoff_rank" \
  castoff train sedd --work_dir=/lustre/orion/abc123/scratch/me/experiments \
  --config=examples/sedd.yaml --datafile=/lustre/orion/abc123/scratch/me/uniref50.fasta.gz \
  --set=scaling.learning_rate=sqrt --set=scaling.warmup=sqrt
castoff_end # its ending, on record; starts it again where that is due
# === castoff for slurm and srun, nodes, devices, requeue: nothing below is about this job ===
