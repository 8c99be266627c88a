#!/bin/bash -l
#SBATCH --job-name=sweep
#SBATCH --account=my-project
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=8
#SBATCH --gpus-per-node=4
#SBATCH --time=00:30:00
#SBATCH --array=0-3
#SBATCH --output=%x-%A_%a.out
#SBATCH --open-mode=append
#SBATCH --signal=B:USR2@120
#SBATCH --no-requeue
#SBATCH --export=NIL

# sweep on slurm: 4 ranks, 4 on 1 node.
# each rank: 8 cores and 1 of 4 devices
# OMP_NUM_THREADS=8: a rank's cores
# Load castoff's functions first: they follow the last line that begins with "# === castoff".
{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT
  castoff_below=$(LC_ALL=C awk '/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}' <"$0")
  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }
  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # LINENO-1, so that errors have the right line numbers

castoff_nodes=1 castoff_ranks=4 castoff_ranks_per_node=4 castoff_full_nodes=1 castoff_device_step=1
castoff_walltime=1800 castoff_grace=120 # seconds; it is asked to stop in the last 120
export CASTOFF_ARRAY_COUNT=4
castoff_begin # make the run directory and its records; handle requests to stop

# --- Parameters: a row for each member, in the order of its number
castoff_parameters lr note seed <<'CASTOFF_PARAMETERS'
1e-3	"a\tb"	0
1e-3	"a\tb"	1
1e-4	"\"$x\""	0
1e-4	"\"$x\""	1
CASTOFF_PARAMETERS

# --- Setup
export OMP_NUM_THREADS=8
castoff_setup # a failing line is reported and ends the job; unset variables are empty
module load python
castoff_setup_over

# --- Environment of the ranks
castoff_clear_stale_env # a parent job's launcher variables must not reach our ranks
export OUT=out/"${castoff_parameter[seed]}"
cd ./runs/"${castoff_parameter[lr]}"
castoff_rendezvous # sets MASTER_ADDR and MASTER_PORT

# --- Start
castoff_start srun --nodes=1 --ntasks=4 --ntasks-per-node=4 --cpus-per-task=8 --kill-on-bad-exit=1 --wait=0 \
  --export=ALL \
  "$castoff_rank" \
  python train.py --lr="${castoff_parameter[lr]}" --note "${castoff_parameter[note]}" \
  '{"seed": '"${castoff_parameter[seed]}"'}' '{lr}'
castoff_end # record the ending; requeue if necessary
# === castoff for slurm and srun: nothing below is about this job ===
