#!/bin/bash

# causets on local: 2 ranks, 2 on 1 node.
POSIXLY_CORRECT=1 # unset is then bash's own, whatever functions the environment holds
unset -f awk builtin echo eval exit export readonly set shopt unset; unset -v POSIXLY_CORRECT
set -euo pipefail
# First of all, castoff's functions: they stand below the last line that begins with "# === castoff".
if ! castoff_below=$(LC_ALL=C awk '/^# === castoff / { last = NR } { line[NR] = $0 }
    END { while (last && ++i <= NR) print (i > last ? line[i] : "") }' <"$0") ||
  [[ $castoff_below != *$'\ncastoff_loaded=1' ]]; then
  echo "castoff: the functions at the end of $0 cannot be read: is all of it there?" >&2
  exit 1
fi
eval "${castoff_below:LINENO-1}" # so that their errors name the right lines

castoff_nodes=1 castoff_ranks=2 castoff_ranks_per_node=2 castoff_full_nodes=1
export CASTOFF_ARRAY_COUNT=1
castoff_begin # the run directory and its records; what asks this job to stop

# --- Environment of the ranks
castoff_clear_stale_env # what a parent's ranks were told must not reach ours

# --- Start
castoff_start "${CASTOFF_COMMAND:-castoff}" launch --here --ranks-per-node 2 -- \
  python -m trainers.gnn --config causets.yaml
castoff_end # its ending, on record; starts it again where that is due
# === castoff for local and local: nothing below is about this job ===
