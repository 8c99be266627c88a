#!/bin/bash -l
#SBATCH --job-name=causets
#SBATCH --account=m1234
#SBATCH --qos=regular
#SBATCH --constraint=gpu
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --gpus-per-node=4
#SBATCH --time=00:30:00
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --signal=B:USR2@120
#SBATCH --no-requeue
#SBATCH --export=NIL

# causets on perlmutter: 8 ranks, 4 on each of 2 nodes.
# each rank: 16 cores and 1 of 4 devices
# 4 ranks per node: the node has 4 devices
# --cpus-per-task=32: a rank's 16 cores, which have 2 CPUs each
# OMP_NUM_THREADS=16: a rank's cores
# Load castoff's functions first: they follow the last line that begins with "# === castoff".
{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT
  castoff_below=$(LC_ALL=C awk '/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}' <"$0")
  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }
  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # LINENO-1, so that errors have the right line numbers

castoff_nodes=2 castoff_ranks=8 castoff_ranks_per_node=4 castoff_full_nodes=2 castoff_device_step=1
castoff_walltime=1800 castoff_grace=120 castoff_start_timeout=600 # seconds; it is asked to stop in the last 120
castoff_device_variable=CUDA_VISIBLE_DEVICES castoff_visible=3,2,1,0
castoff_near="0-15,64-79 16-31,80-95 32-47,96-111 48-63,112-127" # for each rank of a node, CPUs near its devices
castoff_better=0-15,64-79:16-31,80-95:32-47,96-111:48-63,112-127
export CASTOFF_ARRAY_COUNT=1
castoff_begin # make the run directory and its records; handle requests to stop

# --- Setup
export NCCL_SOCKET_IFNAME=hsn
export NCCL_CROSS_NIC=1
export NCCL_NET_GDR_LEVEL=PHB
export FI_CXI_DISABLE_HOST_REGISTER=1
export OMP_NUM_THREADS=16
castoff_setup # a failing line is reported and ends the job; unset variables are empty
module load python
castoff_setup_over

# --- Environment of the ranks
castoff_clear_stale_env # a parent job's launcher variables must not reach our ranks
castoff_rendezvous # sets MASTER_ADDR and MASTER_PORT

# --- Start
castoff_start srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=32 --kill-on-bad-exit=1 --wait=0 \
  --export=ALL --cpu-bind=cores \
  "$castoff_rank" \
  python -m castoff.trainers.gnn --config causets.yaml
castoff_end # record the ending; requeue if necessary
# === castoff for slurm and srun: nothing below is about this job ===
