#!/bin/bash -l
#SBATCH --job-name=dpo
#SBATCH --account=m1234_g
#SBATCH --qos=regular
#SBATCH --constraint=gpu
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --gpus-per-node=4
#SBATCH --time=06:00:00
#SBATCH --output=%x-%j.out
#SBATCH --open-mode=append
#SBATCH --signal=B:USR2@300
#SBATCH --requeue
#SBATCH --export=NIL

# dpo on perlmutter: 8 ranks, 4 on each of 2 nodes.
# 4 ranks per node: the node has 4 devices
# --cpus-per-task=32: a rank's 16 cores, which have 2 CPUs each
# OMP_NUM_THREADS=16: a rank's cores
set -euo pipefail

castoff_job=${SLURM_JOB_ID:?castoff: submit this script with sbatch}
castoff_index=0
castoff_member=$castoff_job
castoff_submit_dir=$SLURM_SUBMIT_DIR
castoff_restarts=${SLURM_RESTART_COUNT:-0}
castoff_hosts() { scontrol show hostnames "$SLURM_JOB_NODELIST"; }
castoff_end_time() {
  local castoff_end=${SLURM_JOB_END_TIME:-}
  if [[ -z $castoff_end ]]; then # older than Slurm 23.02
    castoff_end=$(squeue --noheader --job "$castoff_member" --format %e 2>/dev/null || true)
    castoff_end=$(date -d "${castoff_end:-unknown}" +%s 2>/dev/null || true)
  fi
  echo "$castoff_end"
}
castoff_requeue() { # Slurm then ends this job, and scontrol with it, maybe before that has its answer
  scontrol requeue "$castoff_member" || (($? == 143))
}

# --- Run directory: records and logs --------------------------------------------------------------
# `castoff submit` names it. A script that stands alone makes castoff-<job id> where it was submitted,
# and copies itself there; a directory that a parent job left in the environment is not believed.
if [[ -n ${CASTOFF_RUN_DIR:-} && ! -e $CASTOFF_RUN_DIR ]]; then
  echo "castoff: $(hostname) does not see $CASTOFF_RUN_DIR: a run directory must lie where all nodes see it;" \
    "castoff submit --runs-dir names another folder; should it be another job's, unset CASTOFF_RUN_DIR first" >&2
  exit 1
fi
if [[ -z ${CASTOFF_RUN_DIR:-} ]] || ! cmp -s "$0" "$CASTOFF_RUN_DIR/job.sh"; then
  CASTOFF_RUN_DIR=$castoff_submit_dir/castoff-$castoff_job
  unset -v CASTOFF_ATTEMPT CASTOFF_ARRAY_OFFSET CASTOFF_FIRST_ATTEMPT
  # shellcheck disable=SC2174 # its parent is there
  [[ -L $CASTOFF_RUN_DIR ]] || mkdir -p -m 700 "$CASTOFF_RUN_DIR"
fi
if [[ -L $CASTOFF_RUN_DIR || ! -O $CASTOFF_RUN_DIR ]]; then # somebody put it where ours belongs
  echo "castoff: $CASTOFF_RUN_DIR is a link or somebody else's, so nothing is written there" >&2
  exit 1
fi
castoff_mode=$(stat --format %a "$CASTOFF_RUN_DIR")
if ((8#$castoff_mode & 8#22)); then
  echo "castoff: $CASTOFF_RUN_DIR: others may write to it (mode $castoff_mode), so what it says may be theirs;" \
    "if you trust it, chmod go-w $(printf %q "$CASTOFF_RUN_DIR")" >&2
  exit 1
fi
cmp -s "$0" "$CASTOFF_RUN_DIR/job.sh" || (
  umask 077
  cp "$0" "$CASTOFF_RUN_DIR/.job.sh.$castoff_index"
  mv "$CASTOFF_RUN_DIR/.job.sh.$castoff_index" "$CASTOFF_RUN_DIR/job.sh"
)
export CASTOFF_RUN_DIR
export CASTOFF_ARRAY_INDEX=$((${CASTOFF_ARRAY_OFFSET:-0} + castoff_index))
export CASTOFF_ARRAY_COUNT=1
export CASTOFF_ATTEMPT=$((${CASTOFF_ATTEMPT:-0} + castoff_restarts))
while [[ -e $CASTOFF_RUN_DIR/attempts/$CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT ]]; do
  CASTOFF_ATTEMPT=$((CASTOFF_ATTEMPT + 1)) # started again without a count, as after a node failure
done
export CASTOFF_FIRST_ATTEMPT=${CASTOFF_FIRST_ATTEMPT:-0} # of this submission
export CASTOFF_ATTEMPT_DIR=$CASTOFF_RUN_DIR/attempts/$CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT
export CASTOFF_LOG_DIR=$CASTOFF_RUN_DIR/logs/$CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT
export CASTOFF_STOP_FILE=$CASTOFF_ATTEMPT_DIR/stop            # when it appears: stop early, please
export CASTOFF_OUTCOME_FILE=$CASTOFF_ATTEMPT_DIR/outcome      # the program may write: done or again
export CASTOFF_FAILURE_FILE=$CASTOFF_ATTEMPT_DIR/failure.json # the first rank that failed
(
  umask 077
  mkdir -p "$CASTOFF_ATTEMPT_DIR" "$CASTOFF_LOG_DIR"
  printf '{"job": "%s", "cluster": "%s", "host": "%s", "time": %s}\n' "$castoff_job" "${SLURM_CLUSTER_NAME:-}" \
    "$(hostname)" "$(date +%s)" >"$CASTOFF_ATTEMPT_DIR/start.json"
  printf '%400s\n' '' >"$CASTOFF_ATTEMPT_DIR/.ending.json" # room for the last word, should the disk be full
)
if ((CASTOFF_ATTEMPT)); then echo "castoff: attempt $CASTOFF_ATTEMPT begins"; fi # one log may hold several

castoff_ending=failed
castoff_record_ending() { # ENDING CODE
  # A child that a signal ends as it begins still has this script's traps.
  if [[ $BASHPID != "$$" ]]; then return 0; fi
  if [[ $1 == failed && $2 == 0 ]]; then set -- failed 1; fi # a signal ended it, or an `exit` in setup
  (
    umask 077
    printf '{"ending": "%s", "code": %s, "time": %s}\n' "$1" "$2" "$(date +%s)" \
      1<>"$CASTOFF_ATTEMPT_DIR/.ending.json" &&
      mv "$CASTOFF_ATTEMPT_DIR/.ending.json" "$CASTOFF_ATTEMPT_DIR/ending.json"
  )
}
trap 'castoff_record_ending "$castoff_ending" $? || true' EXIT # which must not change the code

if [[ -e $CASTOFF_RUN_DIR/stop ]]; then # while it waited, somebody asked the run to stop
  echo "castoff: stopped before it began; castoff resubmit starts it again" >&2
  castoff_ending=cancelled
  exit 143
fi

# --- When it has to stop, and what asks it to -----------------------------------------------------
CASTOFF_DEADLINE=$(castoff_end_time) # seconds since 1970; empty where nobody knows
export CASTOFF_DEADLINE
export CASTOFF_GRACE=300 # a stop is asked for so many seconds before
castoff_starter=
castoff_signalled=
castoff_terminated=
castoff_terminate() { # somebody ends this job: the ranks may still save what they have
  castoff_signalled=1
  castoff_terminated=1
  if [[ -z $castoff_starter ]]; then
    castoff_ending=cancelled
    exit 143
  fi
  : >>"$CASTOFF_ATTEMPT_DIR/terminated" # so that ranks know what USR1 means; on TERM they would be killed
  kill -s USR1 "$castoff_starter" 2>/dev/null || true
}
trap castoff_terminate TERM INT HUP
trap 'castoff_signalled=1; : >>"$CASTOFF_STOP_FILE" || true' USR2

# --- Setup ----------------------------------------------------------------------------------------
cd "$castoff_submit_dir"
set +u # module files and activate scripts read variables that are not set
module load pytorch
source castoff-env/bin/activate
set -u

# --- Environment of the ranks ---------------------------------------------------------------------
# What a parent's ranks were told must not reach ours, nor another scheduler's job the starter.
unset -v CASTOFF_STARTER CASTOFF_RANK CASTOFF_DEVICE RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE \
  NODE_RANK GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME MASTER_ADDR \
  MASTER_PORT TORCHELASTIC_RUN_ID TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS \
  TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_ERROR_FILE TORCHELASTIC_SIGNALS_TO_HANDLE PMI_RANK \
  PMI_SIZE PMI_FD PMI_PORT PMI_ID PMI_JOBID PMI_SPAWNED PMI_LOCAL_RANK PMI_LOCAL_SIZE \
  PMI_UNIVERSE_SIZE PMI_HOSTNAME PMI_CONTROL_PORT PMI_CONTROL_FD PMI_SHARED_SECRET PMI_APP_NUM \
  MPI_LOCALRANKID MPI_LOCALNRANKS HYDI_CONTROL_FD I_MPI_HYDRA_UUID HYDRA_BSTRAP_NODE_ID \
  HYDRA_BSTRAP_PROXY_ID HYDRA_BSTRAP_LOCALHOST HYDRA_BSTRAP_UPSTREAM_FD OMPI_COMM_WORLD_RANK \
  OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_NODE_RANK OMPI_COMM_WORLD_LOCAL_RANK \
  OMPI_COMM_WORLD_LOCAL_SIZE PMIX_RANK PMIX_LOCAL_RANK PMIX_NAMESPACE PMIX_ID PMIX_HOSTNAME \
  PMIX_SERVER_URI2 PMIX_SERVER_URI21 PMIX_SERVER_URI3 PMIX_SERVER_URI4 PMIX_SERVER_URI41 \
  PMIX_SERVER_TMPDIR PALS_RANKID PALS_LOCAL_RANKID PALS_LOCAL_SIZE PALS_NODEID PALS_SIZE \
  PALS_APID FLUX_TASK_RANK FLUX_TASK_LOCAL_ID FLUX_JOB_SIZE FLUX_JOB_NNODES JSM_NAMESPACE_RANK \
  JSM_NAMESPACE_SIZE JSM_NAMESPACE_LOCAL_RANK SLURM_PROCID SLURM_LOCALID SLURM_NODEID \
  SLURM_GTIDS SLURM_STEP_ID SLURM_STEPID SLURM_STEP_NUM_TASKS SLURM_STEP_NUM_NODES \
  SLURM_STEP_NODELIST SLURM_STEP_TASKS_PER_NODE SLURM_STEP_LAUNCHER_PORT \
  SLURM_LAUNCH_NODE_IPADDR SLURM_SRUN_COMM_HOST SLURM_SRUN_COMM_PORT
unset -v "${!PBS_@}"
export PYTHONUNBUFFERED=${PYTHONUNBUFFERED-1}
export NCCL_SOCKET_IFNAME=hsn
export NCCL_CROSS_NIC=1
export NCCL_NET_GDR_LEVEL=PHB
export FI_CXI_DISABLE_HOST_REGISTER=1
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export NCCL_DEBUG=WARN
export OMP_NUM_THREADS=16

# --- Rendezvous: where the ranks meet -------------------------------------------------------------
castoff_hosts >"$CASTOFF_ATTEMPT_DIR/hosts"
castoff_count=$(wc -l <"$CASTOFF_ATTEMPT_DIR/hosts")
if ((castoff_count != 2)); then
  echo "castoff: this script is for 2 hosts, but the job has $((castoff_count)):" >&2
  cat "$CASTOFF_ATTEMPT_DIR/hosts" >&2
  echo "castoff: render it anew with --nodes $((castoff_count))" >&2
  exit 1
fi
read -r castoff_first <"$CASTOFF_ATTEMPT_DIR/hosts"
export MASTER_ADDR=${castoff_first%%.*}
if [[ $castoff_first =~ ^[0-9.]+$ ]]; then MASTER_ADDR=$castoff_first; fi
castoff_sum=$(echo "$CASTOFF_ATTEMPT_DIR" | cksum) # another for each start, also within one job
export MASTER_PORT=$((20000 + ${castoff_sum%% *} % 10000))
for _ in {1..50}; do # a port that takes a connection is somebody else's; this is that host
  # shellcheck disable=SC2016 # the inner bash reads the address itself; -p keeps it off BASH_ENV
  timeout 5 bash -pc ': <>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT"' 2>/dev/null || break
  MASTER_PORT=$((20000 + (MASTER_PORT + 1) % 10000))
done

# A node that does not share the run directory could only say that a file is not there.
# shellcheck disable=SC2016
castoff_look='[ -e "$0" ] || { echo "castoff: $(hostname) does not see ${0%/*}: a run directory must lie where all'
# shellcheck disable=SC2016
castoff_look+=' nodes see it; castoff submit --runs-dir names another folder" >&2; exit 1; }; exec "$0" "$@"'
# --- Who each rank is: this runs once for each of them --------------------------------------------
cat >"$CASTOFF_ATTEMPT_DIR/rank.sh" <<'CASTOFF_RANK'
#!/bin/sh
set -u
RANK=${SLURM_PROCID:?castoff: srun did not say which rank this is}
LOCAL_RANK=${SLURM_LOCALID:?castoff: srun did not say which local rank this is}
NODE_RANK=${SLURM_NODEID:?castoff: srun did not say which node this is}
castoff_started=${SLURM_STEP_NUM_TASKS:?castoff: this is no step of srun}
LOCAL_WORLD_SIZE=4
castoff_refuse() { # this is not how the script laid the ranks out
  echo "castoff: $*" >&2
  kill -s KILL "$$" # on an exit code alone some starters let the other ranks run on
}
[ "$castoff_started" -eq 8 ] ||
  castoff_refuse "srun started $castoff_started processes; this script is for 8"
[ "$LOCAL_RANK" -lt "$LOCAL_WORLD_SIZE" ] ||
  castoff_refuse "rank $RANK has local rank $LOCAL_RANK; this script lays $LOCAL_WORLD_SIZE ranks out there"
export CUDA_VISIBLE_DEVICES=3,2,1,0
WORLD_SIZE=8
CASTOFF_STARTER=srun
CASTOFF_RANK=$RANK/$WORLD_SIZE # tells this rank from those that its program may start itself
export RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE NODE_RANK CASTOFF_STARTER CASTOFF_RANK
export CASTOFF_DEVICE="$LOCAL_RANK" # among those that this rank sees

castoff_log=rank-$(printf %05d "$RANK").log
exec 3>>"$CASTOFF_LOG_DIR/$castoff_log"
castoff_become() {
  exec </dev/null >&3 2>&1 3>&-
  trap '' USR1 # it gets it when the script ends the ranks, too, and must not die of that
  exec "$@" # so that a program named echo is none of sh's own
}
castoff_on_usr1() {
  # The script's sign to stop, if this file is there; else the program's own, which srun has told too.
  if [ -z "$castoff_told" ] && [ -e "$CASTOFF_ATTEMPT_DIR/terminated" ]; then
    castoff_told=1
    castoff_pass_on TERM
  fi
}
castoff_told= # whether somebody ended this rank: then its code says nothing
castoff_program=
castoff_pass_on() {
  castoff_interrupted=1
  [ -z "$castoff_program" ] || kill -s "$1" "$castoff_program" 2>/dev/null
}
trap 'castoff_told=1; castoff_pass_on TERM' TERM INT HUP
trap castoff_on_usr1 USR1
trap 'castoff_pass_on USR2' USR2
(castoff_become "$@") &
castoff_program=$!
[ -z "$castoff_told" ] || castoff_pass_on TERM
castoff_code=127
castoff_interrupted=1
while [ -n "$castoff_interrupted" ] || kill -s 0 "$castoff_program" 2>/dev/null; do # a signal ends wait alone
  castoff_interrupted=
  wait "$castoff_program"
  castoff_last=$?
  # 127: its code is known already, or there is no such program. bash 5.2 says -1 where it has lost the code
  # to a signal; then what the signal left counts, as it is most often what the program died of.
  [ "$castoff_last" -ge 0 ] && [ "$castoff_last" -ne 127 ] || break
  castoff_code=$castoff_last
done
castoff_record_failure() { # RANK
  castoff_signal=null
  if [ "$castoff_code" -gt 128 ] && castoff_name=$(kill -l "$castoff_code" 2>/dev/null); then
    castoff_signal="\"SIG$castoff_name\""
  fi
  # noclobber: the first writer wins
  (set -C && printf '{"rank": %s, "host": "%s", "code": %s, "signal": %s, "log": "%s", "time": %s}\n' \
    "$1" "$(hostname)" "$castoff_code" "$castoff_signal" \
    "$castoff_log" "$(date +%s)" \
    >"$CASTOFF_FAILURE_FILE") 2>/dev/null
}
if [ "$castoff_code" -ne 0 ] && [ -z "$castoff_told" ]; then
  castoff_record_failure "$RANK"
fi
[ "$castoff_code" -ne 0 ] || [ "$RANK" -ne 0 ] || (: >"$CASTOFF_ATTEMPT_DIR/finished") 2>/dev/null
exit "$castoff_code"
CASTOFF_RANK
chmod 700 "$CASTOFF_ATTEMPT_DIR/rank.sh"

# --- Start the ranks ------------------------------------------------------------------------------
: >"$CASTOFF_LOG_DIR/rank-00000.log"
srun --nodes=2 --ntasks=8 --ntasks-per-node=4 --cpus-per-task=32 --kill-on-bad-exit=1 --wait=0 \
  --export=ALL --cpu-bind=cores \
  /bin/sh -c "$castoff_look" "$CASTOFF_ATTEMPT_DIR/rank.sh" \
  castoff train dpo '--train_data=$SCRATCH/data/pairs.json' '--base_model_dir=$SCRATCH/models' \
  '--output_dir=$SCRATCH/dpo/first' --learning_rate=3e-7 \
  --set=training.scaling.learning_rate=linear --set=training.scaling.base_world_size=1 &
castoff_starter=$!
tail -n +1 -f -s 0.2 --pid="$castoff_starter" "$CASTOFF_LOG_DIR/rank-00000.log" & # the others' are beside it
castoff_tail=$!
# bash may lose the code of what a signal ends while `wait` waits for it: so that asks when it has ended.
while kill -0 "$castoff_starter" 2>/dev/null; do
  read -r -t 0.1 -u 9 _ || true # nothing ever comes; traps run meanwhile
done 9<> <(:)
castoff_signalled=1
while [[ -n $castoff_signalled ]]; do # a signal ends wait alone
  castoff_signalled=
  castoff_code=0
  wait "$castoff_starter" || castoff_code=$?
done
wait "$castoff_tail" || true

# --- How it ended ---------------------------------------------------------------------------------
# The first failure and the program's own word decide; a starter's exit code may be a victim's.
set +e # a message that a full disk does not take must not become the job's code
castoff_outcome=$(cat "$CASTOFF_OUTCOME_FILE" 2>/dev/null || true)
castoff_late= # whether it is the walltime that ends this job
if [[ -n ${CASTOFF_DEADLINE:-} ]] && (($(date +%s) + 15 > CASTOFF_DEADLINE)); then castoff_late=1; fi

if [[ -s $CASTOFF_FAILURE_FILE ]]; then # an empty one says nothing: the disk was full
  castoff_field() { sed -n 's/.*"'"$1"'": *"\{0,1\}\([^",}]*\).*/\1/p' "$CASTOFF_FAILURE_FILE"; }
  castoff_code=$(castoff_field code)
  castoff_log=$(castoff_field log)
  castoff_who="rank $(castoff_field rank)"
  echo "castoff: $castoff_who on $(castoff_field host) was the first to fail," \
    "with code $castoff_code; see $CASTOFF_LOG_DIR/$castoff_log" >&2
  if [[ $castoff_log != rank-00000.log ]]; then tail -n 40 "$CASTOFF_LOG_DIR/$castoff_log" >&2 || true; fi
  exit "${castoff_code:-1}"
fi
if [[ $castoff_outcome == again && (-z $castoff_terminated || -n $castoff_late) ]]; then
  if [[ -e $CASTOFF_RUN_DIR/stop ]]; then # castoff stop asked for it; castoff resubmit lets it go on
    castoff_ending=again
    exit 75
  fi
  if ((CASTOFF_ATTEMPT - CASTOFF_FIRST_ATTEMPT < 3)); then
    castoff_record_ending again 0 # before anything ends this job
    if castoff_requeue; then
      castoff_ending=again
      exit 0
    fi
    echo "castoff: stopped early, but could not be started again" >&2
  else
    echo "castoff: stopped early once more, and requeue.max (3) is used up" >&2
  fi
  castoff_ending=walltime
  exit 75 # EX_TEMPFAIL: it can go on, but nobody starts it again
fi
castoff_ended_well() { [[ -e $CASTOFF_ATTEMPT_DIR/finished || ! -d $CASTOFF_ATTEMPT_DIR ]]; } # or deleted
if ((castoff_code == 0)) && [[ $castoff_outcome != 'done' && -z $castoff_terminated ]]; then
  # srun exits 0, too, when it loses a node: rank 0 itself has to have said that it ended well.
  for _ in {1..10}; do # it may have run on another host
    if castoff_ended_well; then break; fi
    sleep 1
  done
  if ! castoff_ended_well; then
    echo "castoff: srun exited with 0, but rank 0 did not end: its node was lost" >&2
    castoff_terminated=1
  fi
fi
if [[ $castoff_outcome == 'done' || (-z $castoff_terminated && $castoff_code -eq 0) ]]; then
  castoff_ending='done'
  exit 0
fi
if [[ -n $castoff_terminated ]]; then
  castoff_ending=cancelled
  if [[ -n $castoff_late ]]; then castoff_ending=walltime; fi
  if ((castoff_code == 0)); then castoff_code=143; fi
fi
exit "$castoff_code"
