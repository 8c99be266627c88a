#!/bin/bash -l
#PBS -N causets
#PBS -q workq
#PBS -l select=1:ncpus=32:mpiprocs=4
#PBS -l place=scatter
#PBS -l walltime=00:30:00
#PBS -J 0-9%4
#PBS -j oe
#PBS -r y
#PBS -k doe

# causets on pbs: 4 ranks, 4 on 1 node.
# each rank: 8 cores (not bound to them)
# array: to PBS its members 1,3-5,10-20:2 are 0 to 9, since it takes only one range
# OMP_NUM_THREADS=8: a rank's cores
# Load castoff's functions first: they follow the last line that begins with "# === castoff".
{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT
  castoff_below=$(LC_ALL=C awk '/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}' <"$0")
  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }
  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # LINENO-1, so that errors have the right line numbers

castoff_nodes=1 castoff_ranks=4 castoff_ranks_per_node=4 castoff_full_nodes=1
castoff_walltime=1800 castoff_grace=120 # seconds; it is asked to stop in the last 120
castoff_requeue_max=2 # on stop, walltime, preempted, node-failure
castoff_margin=30 # seconds before the walltime at which running ranks are ended, for the requeue
castoff_secrets=TOKEN
castoff_array_indices=1,3-5,10-20:2
export CASTOFF_ARRAY_COUNT=10
castoff_begin # make the run directory and its records; handle requests to stop

# --- Environment of the ranks
castoff_clear_stale_env # a parent job's launcher variables must not reach our ranks
export OMP_NUM_THREADS=8
castoff_need TOKEN
castoff_rendezvous # sets MASTER_ADDR and MASTER_PORT

# --- Start
castoff_start mpiexec -n 4 \
  "$castoff_rank" \
  python -m castoff.trainers.gnn --config causets.yaml
castoff_end # record the ending; requeue if necessary
# === castoff for pbs and hydra: nothing below is about this job ===
