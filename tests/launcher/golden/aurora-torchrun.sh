#!/bin/bash -l
#PBS -N causets
#PBS -A MyProject
#PBS -q debug
#PBS -l select=2
#PBS -l place=scatter
#PBS -l walltime=00:30:00
#PBS -l filesystems=home:flare
#PBS -j oe
#PBS -r n
#PBS -k doe

# causets on aurora: 24 ranks, 12 on each of 2 nodes, started by torchrun.
# each rank: 8 cores and access to all devices of its node; 6 of 102 cores per node unused
# 12 ranks per node: the node has 12 devices
# OMP_NUM_THREADS=8: a rank's cores
# Load castoff's functions first: they follow the last line that begins with "# === castoff".
{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT
  castoff_below=$(LC_ALL=C awk '/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}' <"$0")
  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }
  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # LINENO-1, so that errors have the right line numbers

castoff_nodes=2 castoff_ranks=24 castoff_ranks_per_node=12 castoff_full_nodes=2
castoff_walltime=1800 castoff_grace=120 castoff_start_timeout=600 # seconds; it is asked to stop in the last 120
export CASTOFF_ARRAY_COUNT=1
castoff_begin # make the run directory and its records; handle requests to stop

# --- Setup
export ZE_FLAT_DEVICE_HIERARCHY=FLAT
export CCL_PROCESS_LAUNCHER=pmix
export CCL_ATL_TRANSPORT=mpi
export CCL_KVS_MODE=mpi
export FI_MR_CACHE_MONITOR=userfaultfd
export TMPDIR=/tmp
export OMP_NUM_THREADS=8
castoff_setup # a failing line is reported and ends the job; unset variables are empty
module load frameworks
castoff_setup_over

# --- Environment of the ranks
castoff_clear_stale_env # a parent job's launcher variables must not reach our ranks
castoff_rendezvous .hsn.cm.aurora.alcf.anl.gov # sets MASTER_ADDR and MASTER_PORT

# --- Start
castoff_start mpiexec -n 2 --ppn 1 --cpu-bind list:1-51,53-103 --line-buffer --pmi=pmix \
  "$castoff_rank" \
  python -m castoff.trainers.gnn --config causets.yaml
castoff_end # record the ending; requeue if necessary
# === castoff for pbs and pals: nothing below is about this job ===
