#!/bin/bash -l
#PBS -N causets
#PBS -A MyProject
#PBS -q debug
#PBS -l select=1:system=crux
#PBS -l place=scatter
#PBS -l walltime=00:30:00
#PBS -l filesystems=home:eagle
#PBS -j oe
#PBS -r n

# causets on crux: 8 ranks, 8 on 1 node.
# each rank: 16 cores
# OMP_NUM_THREADS=16: a rank's cores
# Load castoff's functions first: they follow the last line that begins with "# === castoff".
{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT
  castoff_below=$(LC_ALL=C awk '/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}' <"$0")
  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }
  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # LINENO-1, so that errors have the right line numbers

castoff_nodes=1 castoff_ranks=8 castoff_ranks_per_node=8 castoff_full_nodes=1
castoff_walltime=1800 castoff_grace=120 # seconds; it is asked to stop in the last 120
export CASTOFF_ARRAY_COUNT=1
castoff_begin # make the run directory and its records; handle requests to stop

# --- Environment of the ranks
castoff_clear_stale_env # a parent job's launcher variables must not reach our ranks
export OMP_NUM_THREADS=16
castoff_rendezvous # sets MASTER_ADDR and MASTER_PORT

# --- Start
castoff_start mpiexec -n 8 --ppn 8 --cpu-bind list:0-15:16-31:32-47:48-63:64-79:80-95:96-111:112-127 \
  --line-buffer \
  "$castoff_rank" \
  python -m castoff.trainers.gnn --config causets.yaml
castoff_end # record the ending; requeue if necessary
# === castoff for pbs and pals: nothing below is about this job ===
