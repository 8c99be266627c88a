#!/bin/bash

# causets on local: 2 ranks, 2 on 1 node.
# each rank: 1 of 2 devices
# Load castoff's functions first: they follow the last line that begins with "# === castoff".
{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT
  castoff_below=$(LC_ALL=C awk '/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}' <"$0")
  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }
  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # LINENO-1, so that errors have the right line numbers

castoff_nodes=1 castoff_ranks=2 castoff_ranks_per_node=2 castoff_full_nodes=1
castoff_walltime=3600 castoff_grace=120 # seconds; it is asked to stop in the last 120
castoff_requeue_max=2 # on stop, walltime
castoff_margin=30 # seconds before the walltime at which running ranks are ended, for the requeue
export CASTOFF_ARRAY_COUNT=1
castoff_begin # make the run directory and its records; handle requests to stop

# --- Setup
castoff_inherit LD_LIBRARY_PATH WANDB_API_KEY # all other variables are dropped
castoff_setup # a failing line is reported and ends the job; unset variables are empty
module load python
castoff_setup_over
PATH=/opt/python/bin:$PATH

# --- Environment of the ranks
castoff_clear_stale_env # a parent job's launcher variables must not reach our ranks
export GREETING='it'"'"'s five'
castoff_for_program LD_PRELOAD '/opt/it'"'"'s/lib.so'
castoff_need WANDB_API_KEY

# --- Start
castoff_start "${CASTOFF_COMMAND:-castoff}" launch --here --ranks-per-node 2 --devices-per-rank 1 -- \
  python -m castoff.trainers.gnn --config causets.yaml
castoff_end # record the ending; requeue if necessary
# === castoff for local and local: nothing below is about this job ===
