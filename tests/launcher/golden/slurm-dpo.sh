#!/bin/bash -l
#SBATCH --job-name=dpo
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --time=06:00:00
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --signal=B:USR2@300
#SBATCH --requeue
#SBATCH --export=NIL

# dpo on slurm: 4 ranks, 4 on 1 node.
# OMP_NUM_THREADS=1: a rank has one core unless cores_per_rank says more
set -euo pipefail
# First of all, castoff's functions: they stand below the last line that begins with "# === castoff".
if ! castoff_below=$(LC_ALL=C awk '/^# === castoff / { last = NR } { line[NR] = $0 }
    END { while (last && ++i <= NR) print (i > last ? line[i] : "") }' <"$0") ||
  [[ $castoff_below != *$'\ncastoff_loaded=1' ]]; then
  echo "castoff: the functions at the end of $0 cannot be read: is all of it there?" >&2
  exit 1
fi
eval "${castoff_below:LINENO-1}" # so that their errors name the right lines

castoff_nodes=1 castoff_ranks=4 castoff_ranks_per_node=4 castoff_full_nodes=1
castoff_walltime=21600 castoff_grace=300 # seconds; the program is asked to stop in its last ones
castoff_device_step=1
castoff_requeue_max=3
export CASTOFF_ARRAY_COUNT=1
castoff_begin # the run directory and its records; what asks this job to stop

# --- Setup
set +u # module files and activate scripts read variables that are not set
module load cuda/11.8
module load nccl
source castoff-env/bin/activate
set -u

# --- Environment of the ranks
castoff_forget # what a parent's ranks were told must not reach ours
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export NCCL_SOCKET_IFNAME='^docker0,lo'
export NCCL_DEBUG=INFO
export OMP_NUM_THREADS=1
castoff_rendezvous # MASTER_ADDR and MASTER_PORT

# --- Start
castoff_start srun --nodes=1 --ntasks=4 --ntasks-per-node=4 --kill-on-bad-exit=1 --wait=0 --export=ALL \
  "$castoff_rank" \
  castoff train dpo '--train_data=$SCRATCH/data/pairs.json' '--base_model_dir=$SCRATCH/models' \
  '--output_dir=$SCRATCH/dpo/first' --learning_rate=3e-7 \
  --set=training.scaling.learning_rate=linear --set=training.scaling.base_world_size=1
castoff_end # its ending, on record; starts it again where that is due
# === castoff for slurm and srun, devices, requeue: nothing below is about this job ===
