#!/bin/bash -l
#flux: --job-name=causets
#flux: --bank=bank
#flux: --queue=batch
#flux: --nodes=1
#flux: --nslots=1
#flux: --cores-per-slot=32
#flux: --gpus-per-slot=4
#flux: --time-limit=1800s
#flux: --env-remove=*
#flux: --env=HOME --env=LOGNAME --env=PATH --env=SHELL --env=USER --env=WANDB_API_KEY
#flux: --output={{name}}-{{id.dec}}.out

# causets on flux: 4 ranks, 4 on 1 node.
# each rank: 8 cores and 1 of 4 devices
# OMP_NUM_THREADS=8: a rank's cores
# Load castoff's functions first: they follow the last line that begins with "# === castoff".
{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT
  castoff_below=$(LC_ALL=C awk '/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}' <"$0")
  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }
  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # LINENO-1, so that errors have the right line numbers

castoff_nodes=1 castoff_ranks=4 castoff_ranks_per_node=4 castoff_full_nodes=1 castoff_device_step=0
castoff_walltime=1800 castoff_grace=120 # seconds; it is asked to stop in the last 120
castoff_requeue_max=3 # on stop, walltime
castoff_margin=30 # seconds before the walltime at which running ranks are ended, for the requeue
castoff_secrets="WANDB_API_KEY" # variables that a copy of this job reads from the run directory
export CASTOFF_ARRAY_COUNT=1
castoff_begin # make the run directory and its records; handle requests to stop

# --- Environment of the ranks
castoff_clear_stale_env # a parent job's launcher variables must not reach our ranks
export OMP_NUM_THREADS=8
castoff_need WANDB_API_KEY
castoff_rendezvous # sets MASTER_ADDR and MASTER_PORT

# --- Start
castoff_start flux run --nodes=1 --ntasks=4 --cores-per-task=8 --setopt=cpu-affinity=per-task \
  --gpus-per-task=1 --setopt=gpu-affinity=per-task --setopt=exit-on-error \
  --setopt=exit-timeout=none \
  "$castoff_rank" \
  python -m castoff.trainers.gnn --config causets.yaml
castoff_end # record the ending; requeue if necessary
# === castoff for flux and flux: nothing below is about this job ===
