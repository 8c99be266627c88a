#!/bin/bash -l
#SBATCH --job-name=causets
#SBATCH --account=my-project
#SBATCH --partition=gpu
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=4
#SBATCH --time=00:30:00
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --signal=B:USR2@120
#SBATCH --requeue
#SBATCH --export=NIL

# causets on slurm: 8 ranks, 4 on each of 2 nodes.
# each rank: 8 cores and 1 of 4 devices
# OMP_NUM_THREADS=8: a rank's cores
# Load castoff's functions first: they follow the last line that begins with "# === castoff".
{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT
  castoff_below=$(LC_ALL=C awk '/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}' <"$0")
  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }
  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # LINENO-1, so that errors have the right line numbers

castoff_nodes=2 castoff_ranks=8 castoff_ranks_per_node=4 castoff_full_nodes=2 castoff_device_step=1
castoff_walltime=1800 castoff_grace=120 castoff_start_timeout=600 # seconds; it is asked to stop in the last 120
castoff_requeue_max=2 # on stop, walltime, preempted, node-failure
castoff_margin=30 # seconds before the walltime at which running ranks are ended, for the requeue
export CASTOFF_ARRAY_COUNT=1
castoff_begin # make the run directory and its records; handle requests to stop

# --- Teardown: runs on this host at the end, if setup succeeded; the job's exit code stays the same
castoff_at_end teardown <<'CASTOFF_TEARDOWN'
cp "$CASTOFF_STAGE_DIR/best.pt" results/
cat <<X
it's $CASTOFF_OUTCOME
X
CASTOFF_TEARDOWN
castoff_at_end "the site's teardown" <<'CASTOFF_TEARDOWN'
stop_tools
CASTOFF_TEARDOWN

# --- Setup
export OMP_NUM_THREADS=8
castoff_setup # a failing line is reported and ends the job; unset variables are empty
module load python
castoff_setup_over

# --- Environment of the ranks
castoff_clear_stale_env # a parent job's launcher variables must not reach our ranks
castoff_set_up=1 # teardown needs all of the above
castoff_rendezvous # sets MASTER_ADDR and MASTER_PORT

# --- Stage: copy to each node's local disk, before the ranks start
castoff_stage_in "${TMPDIR:-/tmp}"
castoff_item /data/shards data/shards copy leave

# --- Start
castoff_stage srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --kill-on-bad-exit=1 --wait=0 --export=ALL
castoff_start srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=8 --kill-on-bad-exit=1 --wait=0 \
  --export=ALL \
  "$castoff_rank" \
  python -m castoff.trainers.gnn --config causets.yaml
castoff_end # record the ending; requeue if necessary
# === castoff for slurm and srun: nothing below is about this job ===
