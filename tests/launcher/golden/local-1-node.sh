#!/bin/bash

# causets on local: 2 ranks, 2 on 1 node.
# Load castoff's functions first: they follow the last line that begins with "# === castoff".
{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT
  castoff_below=$(LC_ALL=C awk '/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}' <"$0")
  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }
  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # LINENO-1, so that errors have the right line numbers

castoff_nodes=1 castoff_ranks=2 castoff_ranks_per_node=2 castoff_full_nodes=1
export CASTOFF_ARRAY_COUNT=1
castoff_begin # make the run directory and its records; handle requests to stop

# --- Environment of the ranks
castoff_clear_stale_env # a parent job's launcher variables must not reach our ranks

# --- Start
castoff_start "${CASTOFF_COMMAND:-castoff}" launch --here --ranks-per-node 2 -- \
  python -m castoff.trainers.gnn --config causets.yaml
castoff_end # record the ending; requeue if necessary
# === castoff for local and local: nothing below is about this job ===
