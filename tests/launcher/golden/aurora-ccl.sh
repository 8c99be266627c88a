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

# causets on aurora: 12 ranks, 12 on 1 node.
# each rank: 7 cores and 1 of 12 devices; 6 of 90 cores per node unused
# ccl-workers: oneCCL's threads have cores of their own
# ccl-tuning: oneCCL as ALCF tunes it beyond the minimal set
# event-queues: larger event queues, for programs that overflow those of Slingshot
# ccl-application: oneCCL's and Slingshot's settings that help some applications, against hangs at large scale too
# 12 ranks per node: what ccl-workers is made for
# OMP_NUM_THREADS=7: a rank's cores
# castoff's functions first: they are below the last line that begins with "# === castoff".
{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT
  castoff_below=$(LC_ALL=C awk '/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}' <"$0")
  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }
  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # where their errors name the right lines

castoff_nodes=1 castoff_ranks=12 castoff_ranks_per_node=12 castoff_full_nodes=1
castoff_walltime=1800 castoff_grace=120 # seconds; the program is asked to stop in its last ones
castoff_device_step=1
export CASTOFF_ARRAY_COUNT=1
castoff_begin # the run directory and its records; what asks this job to stop

# --- Setup
export ZE_FLAT_DEVICE_HIERARCHY=FLAT
export CCL_PROCESS_LAUNCHER=pmix
export CCL_ATL_TRANSPORT=mpi
export CCL_KVS_MODE=mpi
export TMPDIR=/tmp
export OMP_NUM_THREADS=7
castoff_setup # a line that fails ends the job and is reported; variables that are not set are empty
unset MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE
unset MPIR_CVAR_CH4_POSIX_COLL_SELECTION_TUNING_JSON_FILE
ulimit -c unlimited || true
export MPI_PROVIDER=${FI_PROVIDER:-cxi}
castoff_setup_over

# --- Environment of the ranks
castoff_clear_stale_env # what a parent's launcher set must not reach our ranks
export CCL_WORKER_AFFINITY=42,43,44,45,46,47,94,95,96,97,98,99
export CCL_ALLREDUCE_SCALEOUT='direct:0-1048576;rabenseifner:1048577-max'
export CCL_BCAST=double_tree
export CCL_CONFIGURATION=cpu_gpu_dpcpp
export CCL_CONFIGURATION_PATH=''
export CCL_KVS_CONNECTION_TIMEOUT=600
export CCL_KVS_USE_MPI_RANKS=1
export CCL_ZE_CACHE_OPEN_IPC_HANDLES_THRESHOLD=1024
export FI_CXI_DEFAULT_CQ_SIZE=1048576
export FI_CXI_OFLOW_BUF_SIZE=8388608
export FI_CXI_CQ_FILL_PERCENT=30
export FI_MR_ZE_CACHE_MONITOR_ENABLED=0
export FI_MR_CACHE_MONITOR=disabled
export FI_CXI_RX_MATCH_MODE=hybrid
export INTELGT_AUTO_ATTACH_DISABLE=1
export PALS_PING_PERIOD=240
export PALS_RPC_TIMEOUT=240
export MPIR_CVAR_GATHERV_INTER_SSEND_MIN_PROCS=-1
export CCL_ATL_SYNC_COLL=1
export CCL_OP_SYNC=1
castoff_rendezvous .hsn.cm.aurora.alcf.anl.gov # MASTER_ADDR and MASTER_PORT

# --- Start
castoff_start mpiexec -n 12 --ppn 12 \
  --cpu-bind list:1-7:8-14:15-21:22-28:29-35:36-41,48:53-59:60-66:67-73:74-80:81-87:88-93,100 \
  --line-buffer --pmi=pmix \
  "$castoff_rank" \
  python -m castoff.trainers.gnn --config causets.yaml
castoff_end # its ending, on record; starts it again where that is due
# === castoff for pbs and pals: nothing below is about this job ===
