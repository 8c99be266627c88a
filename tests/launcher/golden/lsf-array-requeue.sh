#!/bin/bash -l
#BSUB -J "causets[1-8]%2"
#BSUB -P project
#BSUB -q gpu
#BSUB -n 64
#BSUB -R "span[ptile=32]"
#BSUB -R "select[(bigmem) && hname!='n1' && hname!='n2']"
#BSUB -gpu num=4:j_exclusive=yes
#BSUB -W 30
#BSUB -env none
#BSUB -r
#BSUB -o %J-%I.out

# causets on lsf: 8 ranks, 4 on each of 2 nodes.
# each rank: 8 cores (not bound to them) and 1 of 4 devices
# OMP_NUM_THREADS=8: a rank's cores
# Load castoff's functions first: they follow the last line that begins with "# === castoff".
{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT
  castoff_below=$(LC_ALL=C awk '/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}' <"$0")
  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }
  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # LINENO-1, so that errors have the right line numbers

castoff_nodes=2 castoff_ranks=8 castoff_ranks_per_node=4 castoff_full_nodes=2 castoff_device_step=1
castoff_walltime=1800 castoff_grace=120 castoff_start_timeout=600 # seconds; it is asked to stop in the last 120
castoff_requeue_max=3 # on stop, walltime, preempted, node-failure
castoff_margin=30 # seconds before the walltime at which running ranks are ended, for the requeue
export CASTOFF_ARRAY_COUNT=8
castoff_begin # make the run directory and its records; handle requests to stop

# --- Environment of the ranks
castoff_clear_stale_env # a parent job's launcher variables must not reach our ranks
export OMP_NUM_THREADS=8
castoff_rendezvous # sets MASTER_ADDR and MASTER_PORT

# --- Start
castoff_start mpiexec -n 8 \
  "$castoff_rank" \
  python -m castoff.trainers.gnn --config causets.yaml
castoff_end # record the ending; requeue if necessary
# === castoff for lsf and hydra: nothing below is about this job ===
