#!/bin/bash

# causets on local: 2 ranks, 2 on 1 node.
# OMP_NUM_THREADS=1: a rank has one core unless cores_per_rank sets more
# castoff's functions first: they are below the last line that begins with "# === castoff".
{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT
  castoff_below=$(LC_ALL=C awk '/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}' <"$0")
  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }
  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # where their errors name the right lines

castoff_nodes=1 castoff_ranks=2 castoff_ranks_per_node=2 castoff_full_nodes=1
castoff_walltime=3600 castoff_grace=120 # seconds; the program is asked to stop in its last ones
export CASTOFF_ARRAY_COUNT=1
castoff_begin # the run directory and its records; what asks this job to stop

# --- Setup
castoff_inherit  # all else is dropped

# --- Environment of the ranks
castoff_clear_stale_env # what a parent's launcher set must not reach our ranks
export OMP_NUM_THREADS=1
castoff_rendezvous # MASTER_ADDR and MASTER_PORT

# --- Stage: on each node's own disk, before the ranks start
castoff_stage_in "${TMPDIR:-/tmp}"
castoff_item ./env.tar.gz env unpack activate
castoff_item /data/shards data/shards copy leave
castoff_item '/data/it'"'"'s words.txt' 'it'"'"'s words.txt' copy leave abababababababababababababababababababababababababababababababab

# --- Start
castoff_stage mpiexec -n 1
castoff_preload mpiexec -n 1 \
  -- torch python -m castoff.trainers.gnn --config causets.yaml
castoff_start mpiexec -n 2 -l \
  "$castoff_rank" \
  python -m castoff.trainers.gnn --config causets.yaml
castoff_end # its ending, on record; starts it again where that is due
# === castoff for local and hydra: nothing below is about this job ===
