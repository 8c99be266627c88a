#!/bin/bash -l
#PBS -N causets
#PBS -A MyProject
#PBS -q capacity
#PBS -l select=2
#PBS -l place=scatter
#PBS -l walltime=00:30:00
#PBS -l filesystems=home:flare
#PBS -j oe
#PBS -r n
#PBS -k doe

# causets on aurora: 24 ranks, 12 on each of 2 nodes.
# each rank: 8 cores and 1 of 12 devices; 6 of 102 cores per node unused
# 12 ranks per node: the node has 12 devices
# OMP_NUM_THREADS=8: a rank's cores
# castoff's functions first: they are below the last line that begins with "# === castoff".
{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT
  castoff_below=$(LC_ALL=C awk '/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}' <"$0")
  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }
  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # where their errors name the right lines

castoff_nodes=2 castoff_ranks=24 castoff_ranks_per_node=12 castoff_full_nodes=2 castoff_device_step=1
castoff_walltime=1800 castoff_grace=120 castoff_start_timeout=600 # seconds; a stop is asked for in the last 120
castoff_restart_max=2 castoff_never="2 126 127" # exit codes after which nothing starts again
castoff_progress=ckpt
castoff_each_host=(mpiexec --ppn 1 --line-buffer --pmi=pmix) # one process a host
castoff_host_devices=12 castoff_host_memory=0 # in KiB; what each host has to have
export CASTOFF_ARRAY_COUNT=1
castoff_begin # the run directory and its records; what asks this job to stop

# --- Setup
export ZE_FLAT_DEVICE_HIERARCHY=FLAT
export CCL_PROCESS_LAUNCHER=pmix
export CCL_ATL_TRANSPORT=mpi
export CCL_KVS_MODE=mpi
export FI_MR_CACHE_MONITOR=userfaultfd
export TMPDIR=/tmp
export OMP_NUM_THREADS=8
castoff_setup # a line that fails ends the job and is reported; variables that are not set are empty
module load frameworks
castoff_setup_over

# --- Environment of the ranks
castoff_clear_stale_env # what a parent's launcher set must not reach our ranks
castoff_rendezvous .hsn.cm.aurora.alcf.anl.gov # MASTER_ADDR and MASTER_PORT

# --- Stage: on each node's own disk, before the ranks start
castoff_stage_in "${TMPDIR:-/tmp}"
castoff_item /data/shards data/shards copy leave

# --- Start
castoff_stage mpiexec -n 2 --ppn 1 --line-buffer --pmi=pmix
while :; do # again in this job after a failure, at most restart.max times
castoff_start mpiexec -n 24 --ppn 12 \
  --cpu-bind list:1-8:9-16:17-24:25-32:33-40:41-48:53-60:61-68:69-76:77-84:85-92:93-100 \
  --line-buffer --pmi=pmix \
  "$castoff_rank" \
  python -m castoff.trainers.gnn --config causets.yaml
castoff_restart || break
done
castoff_end # its ending, on record; starts it again where that is due
# === castoff for pbs and pals: nothing below is about this job ===
