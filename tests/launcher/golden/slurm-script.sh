#!/bin/bash
#SBATCH --job-name=causets
#SBATCH --account=my-project
#SBATCH --partition=gpu
#SBATCH --time=00:30:00
#SBATCH --no-requeue
#SBATCH --export=NIL
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:a100:4

# causets on slurm: a batch script.
# Load castoff's functions first: they follow the last line that begins with "# === castoff".
{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT
  castoff_below=$(LC_ALL=C awk '/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}' <"$0")
  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }
  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # LINENO-1, so that errors have the right line numbers

castoff_walltime=1800 castoff_grace=120 # seconds; it is asked to stop in the last 120
export CASTOFF_ARRAY_COUNT=1
castoff_begin # make the run directory and its records; handle requests to stop


# --- The script
castoff_run_script /bin/bash 3<&0 <<'CASTOFF_SCRIPT'
#!/bin/bash
cd data
srun python train.py
CASTOFF_SCRIPT
castoff_end # record the ending; requeue if necessary
# === castoff for slurm and srun: nothing below is about this job ===
