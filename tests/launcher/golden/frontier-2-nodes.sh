#!/bin/bash -l
#SBATCH --job-name=causets
#SBATCH --account=abc123
#SBATCH --partition=batch
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=7
#SBATCH --time=00:30:00
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --signal=B:USR2@120
#SBATCH --no-requeue
#SBATCH --export=NIL
#SBATCH --network=disable_rdzv_get

# causets on frontier: 16 ranks, 8 on each of 2 nodes.
# each rank: 7 cores and 1 of 8 devices
# 8 ranks per node: the node has 8 devices
# srun shows each rank only its own devices: the first is 0 (CASTOFF_DEVICE)
# OMP_NUM_THREADS=7: a rank's cores
# Load castoff's functions first: they follow the last line that begins with "# === castoff".
{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT
  castoff_below=$(LC_ALL=C awk '/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}' <"$0")
  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }
  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # LINENO-1, so that errors have the right line numbers

castoff_nodes=2 castoff_ranks=16 castoff_ranks_per_node=8 castoff_full_nodes=2 castoff_device_step=0
castoff_walltime=1800 castoff_grace=120 castoff_start_timeout=600 # seconds; it is asked to stop in the last 120
export CASTOFF_ARRAY_COUNT=1
castoff_begin # make the run directory and its records; handle requests to stop

# --- Setup
export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
export FI_CXI_RDZV_PROTO=alt_read
export OMP_NUM_THREADS=7
castoff_setup # a failing line is reported and ends the job; unset variables are empty
export MIOPEN_USER_DB_PATH=/tmp/miopen-$SLURM_JOB_ID MIOPEN_CUSTOM_CACHE_DIR=/tmp/miopen-$SLURM_JOB_ID
module load rocm/7.1.1 rccl-net-plugin
conda activate /path/to/my_env
castoff_setup_over

# --- Environment of the ranks
castoff_clear_stale_env # a parent job's launcher variables must not reach our ranks
castoff_rendezvous # sets MASTER_ADDR and MASTER_PORT

# --- Start
castoff_start srun --nodes=2 --ntasks=16 --ntasks-per-node=8 --cpus-per-task=7 --gpus-per-task=1 \
  --gpu-bind=closest --kill-on-bad-exit=1 --wait=0 --export=ALL \
  "$castoff_rank" \
  python -m castoff.trainers.gnn --config causets.yaml
castoff_end # record the ending; requeue if necessary
# === castoff for slurm and srun: nothing below is about this job ===
