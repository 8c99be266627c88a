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

# causets on aurora: 24 ranks, 12 on each of 2 nodes.
# each rank: 4 cores and 1 of 12 devices
# copper: each node reads the packages of your venv from Copper's cache, not from Lustre
# proxy: compute nodes reach the internet through ALCF's proxy
# no-vni: for DAOS, and for "No VNIs available", where a job starts many programs one after the other
# ddp-cores: the cores of ALCF's page on DDP, which leaves some to oneCCL's threads
# 12 ranks per node: the node has 12 devices
# OMP_NUM_THREADS=4: a rank's cores
# Load castoff's functions first: they follow the last line that begins with "# === castoff".
{ POSIXLY_CORRECT=1; unset -f awk builtin compgen echo eval exit export readonly set unset; unset -v POSIXLY_CORRECT
  castoff_below=$(LC_ALL=C awk '/^# === castoff /{m=NR} {l[NR]=$0} END{while(m&&++i<=NR)print(i>m?l[i]:"")}' <"$0")
  [[ $castoff_below == *castoff_loaded=1 ]] || { echo "castoff: $0 cannot be read: is all of it there?" >&2; exit 1; }
  set -euo pipefail; eval "${castoff_below:LINENO-1}"; } # LINENO-1, so that errors have the right line numbers

castoff_nodes=2 castoff_ranks=24 castoff_ranks_per_node=12 castoff_full_nodes=2 castoff_device_step=1
castoff_walltime=1800 castoff_grace=120 castoff_start_timeout=600 # seconds; it is asked to stop in the last 120
export CASTOFF_ARRAY_COUNT=1
castoff_begin # make the run directory and its records; handle requests to stop

# --- Teardown: runs on this host at the end, if setup succeeded; the job's exit code stays the same
castoff_at_end "the site's teardown" <<'CASTOFF_TEARDOWN'
timeout 30 stop_copper.sh
CASTOFF_TEARDOWN

# --- Setup
export ZE_FLAT_DEVICE_HIERARCHY=FLAT
export CCL_PROCESS_LAUNCHER=pmix
export CCL_ATL_TRANSPORT=mpi
export CCL_KVS_MODE=mpi
export FI_MR_CACHE_MONITOR=userfaultfd
export TMPDIR=/tmp
export OMP_NUM_THREADS=4
castoff_setup # a failing line is reported and ends the job; unset variables are empty
export {http_proxy,https_proxy,HTTP_PROXY,HTTPS_PROXY,ftp_proxy}=http://proxy.alcf.anl.gov:3128
export no_proxy='admin,polaris-adminvm-01,localhost,*.cm.polaris.alcf.anl.gov,polaris-*,*.polaris.alcf.anl.gov,*.alcf.anl.gov'
module load frameworks
module load copper
launch_copper.sh
if [[ -n ${VIRTUAL_ENV:-} ]]; then
  # /flare is a link to /lus/flare, and a link below Copper's folder leads out of it again
  castoff_packages=$(realpath "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')")
  PYTHONPATH=/tmp/$USER/copper$castoff_packages${PYTHONPATH:+:$PYTHONPATH}
  export PYTHONPATH
fi
castoff_setup_over

# --- Environment of the ranks
castoff_clear_stale_env # a parent job's launcher variables must not reach our ranks
castoff_rendezvous .hsn.cm.aurora.alcf.anl.gov # sets MASTER_ADDR and MASTER_PORT

# --- Start
castoff_start mpiexec -n 24 --ppn 12 \
  --cpu-bind list:4-7:8-11:12-15:16-19:20-23:24-27:56-59:60-63:64-67:68-71:72-75:76-79 \
  --line-buffer --pmi=pmix --no-vni \
  "$castoff_rank" \
  python -m castoff.trainers.gnn --config causets.yaml
castoff_end # record the ending; requeue if necessary
# === castoff for pbs and pals: nothing below is about this job ===
