#!/bin/bash -l
#PBS -N causets
#PBS -A MyProject
#PBS -q debug
#PBS -l select=1
#PBS -l place=scatter
#PBS -l walltime=00:30:00
#PBS -l filesystems=home:flare
#PBS -j oe
#PBS -r n
#PBS -k doe

# causets on aurora: 48 ranks, 48 on 1 node.
# each rank: 2 cores and 1 of 12 devices, each of which 4 ranks share; 6 of 102 cores per node unused
# ccs: four ranks share each tile, each with a quarter of its engines
# 48 ranks per node: what ccs is made for
# OMP_NUM_THREADS=2: a rank's cores
# castoff's functions first: they are below the last line that begins with "# === castoff".
{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT
  castoff_below=$(LC_ALL=C awk '/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}' <"$0")
  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }
  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # where their errors name the right lines

castoff_nodes=1 castoff_ranks=48 castoff_ranks_per_node=48 castoff_full_nodes=1
castoff_walltime=1800 castoff_grace=120 # seconds; the program is asked to stop in its last ones
castoff_device_variable=ZE_AFFINITY_MASK
castoff_masks="0 0 0 0 1 1 1 1 2 2 2 2 3 3 3 3 4 4 4 4 5 5 5 5 6 6 6 6 7 7 7 7 8 8 8 8 9 9 9 9 10 10 10 10 11 \
  11 11 11" # of each rank of a node
castoff_device_step=0
export CASTOFF_ARRAY_COUNT=1
castoff_begin # the run directory and its records; what asks this job to stop

# --- Setup
export ZE_FLAT_DEVICE_HIERARCHY=FLAT
export CCL_PROCESS_LAUNCHER=pmix
export CCL_ATL_TRANSPORT=mpi
export CCL_KVS_MODE=mpi
export FI_MR_CACHE_MONITOR=userfaultfd
export TMPDIR=/tmp
export OMP_NUM_THREADS=2
castoff_setup # a line that fails ends the job and is reported; variables that are not set are empty
module load frameworks
castoff_setup_over

# --- Environment of the ranks
castoff_clear_stale_env # what a parent's launcher set must not reach our ranks
export ZEX_NUMBER_OF_CCS=0:4,1:4,2:4,3:4,4:4,5:4,6:4,7:4,8:4,9:4,10:4,11:4
castoff_rendezvous .hsn.cm.aurora.alcf.anl.gov # MASTER_ADDR and MASTER_PORT

# --- Start
castoff_start mpiexec -n 48 --ppn 48 \
  --cpu-bind list:1-2:3-4:5-6:7-8:9-10:11-12:13-14:15-16:17-18:19-20:21-22:23-24:25-26:27-28:29-30:31-32:33-34:35-36:37-38:39-40:41-42:43-44:45-46:47-48:53-54:55-56:57-58:59-60:61-62:63-64:65-66:67-68:69-70:71-72:73-74:75-76:77-78:79-80:81-82:83-84:85-86:87-88:89-90:91-92:93-94:95-96:97-98:99-100 \
  --line-buffer --pmi=pmix \
  "$castoff_rank" \
  python -m castoff.trainers.gnn --config causets.yaml
castoff_end # its ending, on record; starts it again where that is due
# === castoff for pbs and pals: nothing below is about this job ===
