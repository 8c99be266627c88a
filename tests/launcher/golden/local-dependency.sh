#!/bin/bash

# causets on local: 2 ranks, 2 on 1 node.
set -euo pipefail

if [[ $0 -ef ${CASTOFF_RUN_DIR:-}/job.sh ]]; then # castoff's local scheduler runs it
  castoff_job=${CASTOFF_JOB_ID:?}
  castoff_submit_dir=${CASTOFF_SUBMIT_DIR:?}
  castoff_index=${CASTOFF_LOCAL_INDEX:?}
else # it stands alone: what a run around it left in the environment is not ours
  castoff_job=local-$(date +%Y%m%d-%H%M%S)-$$
  castoff_submit_dir=$PWD
  castoff_index=0
  unset -v CASTOFF_RUN_DIR
fi
castoff_restarts=0

# --- Run directory: records and logs --------------------------------------------------------------
# `castoff submit` names it. A script that stands alone makes castoff-<job id> where it was submitted,
# and copies itself there; a directory that a parent job left in the environment is not believed.
if [[ -z ${CASTOFF_RUN_DIR:-} ]] || ! cmp -s "$0" "$CASTOFF_RUN_DIR/job.sh"; then
  CASTOFF_RUN_DIR=$castoff_submit_dir/castoff-$castoff_job
  unset -v CASTOFF_ATTEMPT CASTOFF_ARRAY_OFFSET
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
export CASTOFF_ATTEMPT_DIR=$CASTOFF_RUN_DIR/attempts/$CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT
export CASTOFF_LOG_DIR=$CASTOFF_RUN_DIR/logs/$CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT
export CASTOFF_STOP_FILE=$CASTOFF_ATTEMPT_DIR/stop            # when it appears: stop early, please
export CASTOFF_OUTCOME_FILE=$CASTOFF_ATTEMPT_DIR/outcome      # the program may write: done or again
export CASTOFF_FAILURE_FILE=$CASTOFF_ATTEMPT_DIR/failure.json # the first rank that failed
(
  umask 077
  mkdir -p "$CASTOFF_ATTEMPT_DIR" "$CASTOFF_LOG_DIR"
  printf '{"job": "%s", "host": "%s", "time": %s}\n' "$castoff_job" "$(hostname)" "$(date +%s)" \
    >"$CASTOFF_ATTEMPT_DIR/start.json"
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
unset -v CASTOFF_DEADLINE CASTOFF_GRACE # no walltime; these would be a parent job's
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
  kill -s TERM "$castoff_starter" 2>/dev/null || true
}
trap castoff_terminate TERM INT HUP
trap 'castoff_signalled=1; : >>"$CASTOFF_STOP_FILE" || true' USR2

# --- Setup ----------------------------------------------------------------------------------------
cd "$castoff_submit_dir"

# --- Environment of the ranks ---------------------------------------------------------------------
# What a parent's ranks were told must not reach ours.
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
export PYTHONUNBUFFERED=${PYTHONUNBUFFERED-1}

# --- Start the ranks ------------------------------------------------------------------------------
( # bash lets a background command ignore INT and QUIT; the ranks would inherit that
  trap - INT QUIT
  exec "${CASTOFF_COMMAND:-castoff}" launch --here --ranks-per-node 2 \
    --job-id "$castoff_job.$CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT" \
    --log-dir "$CASTOFF_LOG_DIR" --failure-file "$CASTOFF_FAILURE_FILE" -- \
    python -m trainers.gnn --config causets.yaml
) &
castoff_starter=$!
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

# --- How it ended ---------------------------------------------------------------------------------
# The first failure and the program's own word decide; a starter's exit code may be a victim's.
set +e # a message that a full disk does not take must not become the job's code
castoff_outcome=$(cat "$CASTOFF_OUTCOME_FILE" 2>/dev/null || true)
castoff_late= # whether it is the walltime that ends this job
if [[ -n ${CASTOFF_DEADLINE:-} ]] && (($(date +%s) + 15 > CASTOFF_DEADLINE)); then castoff_late=1; fi

if [[ -s $CASTOFF_FAILURE_FILE ]]; then # an empty one says nothing: the disk was full
  castoff_field() { sed -n 's/.*"'"$1"'": *"\{0,1\}\([^",}]*\).*/\1/p' "$CASTOFF_FAILURE_FILE"; }
  castoff_code=$(castoff_field code)
  exit "${castoff_code:-1}"
fi
if [[ $castoff_outcome == again && (-z $castoff_terminated || -n $castoff_late) ]]; then
  if [[ -e $CASTOFF_RUN_DIR/stop ]]; then # castoff stop asked for it; castoff resubmit lets it go on
    castoff_ending=again
    exit 75
  fi
  castoff_ending=walltime
  exit 75 # EX_TEMPFAIL: it can go on, but nobody starts it again
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
