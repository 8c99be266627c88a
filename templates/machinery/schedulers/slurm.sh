# --- What Slurm tells a job -----------------------------------------------------------------------
castoff_scheduler_locate() {
#if array
  castoff_job=${SLURM_ARRAY_JOB_ID:?castoff: submit this script with sbatch}
  castoff_index=$SLURM_ARRAY_TASK_ID
  castoff_member=${castoff_job}_$castoff_index # SLURM_JOB_ID may stand for the whole array
#else
  castoff_job=${SLURM_JOB_ID:?castoff: submit this script with sbatch}
  castoff_index=0 castoff_member=$castoff_job
#endif
  castoff_cluster=${SLURM_CLUSTER_NAME:-} castoff_submit_dir=$SLURM_SUBMIT_DIR
  castoff_restarts=${SLURM_RESTART_COUNT:-0}
  castoff_mark=SLURM_JOB_ID=$SLURM_JOB_ID # jobs that its ranks submit have all else of their environment
}
#if array
castoff_scheduler_choose_log() {
  if [[ -n ${CASTOFF_ARRAY_OFFSET:-} ]]; then # Slurm counts from 0 again, and would name the log by that
    exec >>"$CASTOFF_RUN_DIR/logs/job-$CASTOFF_ARRAY_INDEX.log" 2>&1
    export SLURM_ARRAY_TASK_ID=$CASTOFF_ARRAY_INDEX # to a program that reads Slurm's variable, each member is another
  fi
}
#endif
#if teardown
castoff_scheduler_kill_delay() {
  local castoff_seconds
  castoff_seconds=$(timeout 2 scontrol show config 2>/dev/null | sed -n 's/^KillWait *= *\([0-9]*\) sec.*/\1/p' || true)
  echo "${castoff_seconds:-30}"
}
#endif
#if secrets
castoff_scheduler_advice="submit with sbatch --export=NAME"
#endif
#if script
castoff_scheduler_begin() { # srun hands on what sbatch --export named, and castoff has named variables of its own
  local castoff_exported=,${SLURM_EXPORT_ENV-}
  while [[ $castoff_exported =~ ,CASTOFF_[A-Z_]+ ]]; do castoff_exported=${castoff_exported/"${BASH_REMATCH[0]}"/}; done
  if [[ -n ${SLURM_EXPORT_ENV-} ]]; then
    castoff_exported=${castoff_exported#,}
    SLURM_EXPORT_ENV=${castoff_exported:-NONE}
  fi
}
#else
castoff_scheduler_hosts() { scontrol show hostnames "$SLURM_JOB_NODELIST"; }
#if driver
castoff_scheduler_clear_env() { unset -v SLURM_NTASKS SLURM_NPROCS "${!PBS_@}"; } # or Lightning takes it for a rank
#else
castoff_scheduler_clear_env() { unset -v "${!PBS_@}"; } # the launcher would believe them
#endif
# sbatch hands on the variables of the job or step that it runs in, whatever --export says, and srun obeys them: all
# ranks would be bound to the CPUs of that step (seen on 22.05.8), or srun would wait for ever (SLURM_TRES_PER_TASK,
# 26.05.5). So what says how ranks share and are bound has to come from a directive of this script.
castoff_scheduler_begin() {
  local castoff_name castoff_option
  for castoff_name in "${!SLURM_@}" "${!SRUN_@}"; do
    castoff_option=${castoff_name#S*_}
    case $castoff_option in
      *_BIND | *_BIND_*) castoff_option=${castoff_option%%_BIND*}_BIND ;;
      DIST*) castoff_option=DISTRIBUTION ;;
      MEM_PER_NODE) castoff_option=MEM ;;
      HINT | TRES_PER_TASK | CPUS_PER_* | GPUS_PER_* | MEM_PER_* | NTASKS_PER_[!N]* | THREADS_PER_CORE) ;;
      *) continue ;;
    esac
    castoff_option=${castoff_option//_/-}
    grep -q "^#SBATCH --${castoff_option,,}\b" "$0" || unset -v "$castoff_name"
  done
  unset -v SLURM_EXPORT_ENV # of sbatch --export: each srun and sbatch in here would begin with an empty environment
}
#endif
castoff_scheduler_end_time() { echo "${SLURM_JOB_END_TIME:-$(castoff_scheduler_end_now)}"; } # of Slurm 23.02 and newer
castoff_scheduler_end_now() { # asked anew, as scontrol may have changed it; empty where nobody knows
  local castoff_end
  castoff_end=$(timeout 10 squeue --noheader --job "$castoff_member" --format %e 2>/dev/null || true)
  date -d "${castoff_end:-unknown}" +%s 2>/dev/null || true
}
#if requeue
castoff_scheduler_requeue() { # Slurm then ends this job, and scontrol with it, maybe before that has its answer
  local castoff_code castoff_said castoff_last=$((SECONDS + ${castoff_grace:-120}))
  castoff_terminated=
#if !rerun
  timeout -k 2 30 scontrol update "JobId=$castoff_member" Requeue=1 >/dev/null 2>&1 || true # or it refuses this, too
#endif
  while :; do
    castoff_code=0
    castoff_said=$(timeout -k 2 30 scontrol requeue "$castoff_member" 2>&1) || castoff_code=$?
    if ((castoff_code == 0 || castoff_code == 143)) || [[ -n $castoff_terminated ]]; then return 0; fi
    echo "castoff: scontrol requeue $castoff_member: ${castoff_said:-no answer (exit code $castoff_code)}" >&2
    if [[ $castoff_said == *denied* || $castoff_said == *disabled* ]]; then return 1; fi
    # What had no answer may still happen, and a second request could end the next attempt: so there is
    # none before Slurm says that it still runs this one.
    until castoff_said=$(castoff_as_slurm_has_it); do
      if [[ -n $castoff_terminated ]]; then return 0; fi
      if ((SECONDS >= castoff_last)) || [[ -e $CASTOFF_RUN_DIR/stop ]]; then return 1; fi
      read -r -t 1 _ <> <(:) || true # unlike sleep it lets a trap run
    done
    if [[ ! $castoff_said =~ ^RUNNING\ +"${SLURM_RESTART_COUNT:-0}"\ *$ ]]; then return 0; fi
    if ((SECONDS >= castoff_last)) || [[ -e $CASTOFF_RUN_DIR/stop ]]; then return 1; fi
    read -r -t 1 _ <> <(:) || true # unlike sleep it lets a trap run
  done
}
castoff_as_slurm_has_it() { # the state of this job, and how often it has been started again
  timeout -k 2 30 squeue --noheader --job "$castoff_member" --Format State:20,RestartCnt:20 2>/dev/null
}
#endif
#if spares
# Slurm takes a host that is down out of a job with --no-kill. If it was this script's own, the job would be running
# until its walltime with nobody at work. So two other hosts look whether it is still there.
castoff_guards=()
castoff_scheduler_guard() { # from now on; each attempt has its own
  local castoff_script_host=${SLURMD_NODENAME:-$(hostname)} castoff_output castoff_requeues=''
  local castoff_looks=3 castoff_host
  castoff_scheduler_finish
  castoff_output=$(readlink /proc/$$/fd/1 || true)
  if [[ $castoff_output != /* ]]; then castoff_output=/dev/null; fi # it is no file, but a pipe
#if requeue rerun
  if (($(castoff_count_requeues) < castoff_requeue_max)); then castoff_requeues=1; fi
#endif
  castoff_write guard.sh castoff_member castoff_script_host castoff_output castoff_requeues <<'CASTOFF_GUARD'
castoff_working() { # whether Slurm still has the script's host in the job, or somebody is at work without it
  castoff_job_now=$(timeout -k 2 30 squeue --noheader --job "$castoff_member" --format '%T %N' 2>/dev/null) || return 0
  case $castoff_job_now in RUNNING*) ;; *) return 0 ;; esac
  castoff_hosts_now=$(scontrol show hostnames "${castoff_job_now#* }" 2>/dev/null) || return 0
  ! echo "$castoff_hosts_now" | grep -qxF "$castoff_script_host" || return 0
  castoff_steps=$(timeout -k 2 30 squeue --noheader --steps --job "$castoff_member" --format '%i %j' 2>/dev/null) ||
    return 0
  echo "$castoff_steps" | grep -qvE '^ *$|^[^ ]*[.](batch|extern|interactive) |castoff-guard *$'
}
castoff_idle=0 castoff_slept=0 castoff_looked=
while sleep 1; do
  # With an ending on record Slurm ends the job, or another attempt begins; but a script on a host that is cut off can
  # record one as well, and Slurm does not hear of it.
  if [ -z "$castoff_looked" ] && [ -e "$CASTOFF_ATTEMPT_DIR/ending.json" ]; then
    castoff_looked=1
    ! castoff_working || exit 0
  fi
  castoff_word=$(cat "$CASTOFF_ATTEMPT_DIR/fence" 2>/dev/null)
  [ "$castoff_word" != next ] || exit 0 # another attempt has begun, in this job, too, if it was requeued
  castoff_slept=$((castoff_slept + 1))
  [ "$castoff_slept" -ge 20 ] || continue # slurmctld has more to do
  castoff_slept=0 castoff_idle=$((castoff_idle + 1))
  if castoff_working; then
    [ -z "$castoff_looked" ] || exit 0
    castoff_idle=0
  fi
  [ "$castoff_idle" -ge "$1" ] || continue # between attempts nobody is at work for a while, even with a script
  castoff_why="$castoff_script_host, the host of the job's script, was lost"
  [ ! -e "$CASTOFF_ATTEMPT_DIR/ending.json" ] ||
    grep -q '"node-failure"\|"restart"' "$CASTOFF_ATTEMPT_DIR/ending.json" || castoff_requeues=
  if [ -n "$castoff_requeues" ]; then
    echo "castoff: $castoff_why: the job is requeued" >>"$castoff_output"
    rm -f "$CASTOFF_ATTEMPT_DIR/ending.json" # or the run would seem to be over
    castoff_code=0
    timeout -k 2 30 scontrol requeue "$castoff_member" >>"$castoff_output" 2>&1 || castoff_code=$?
    case $castoff_code in
      0) exit 0 ;;
      124 | 137) continue ;; # no answer: it may still happen, so Slurm is asked once more what it has
    esac
  fi
  echo "castoff: $castoff_why: the job is ended" >>"$castoff_output"
  (
    umask 077
    [ -e "$CASTOFF_ATTEMPT_DIR/ending.json" ] || {
      printf '{"ending": "node-failure", "code": 1, "time": %s, "reason": "%s"}\n' "$(date +%s)" "$castoff_why" \
        >"$CASTOFF_ATTEMPT_DIR/.guard.json" && mv "$CASTOFF_ATTEMPT_DIR/.guard.json" "$CASTOFF_ATTEMPT_DIR/ending.json"
    }
    echo over 1<>"$CASTOFF_ATTEMPT_DIR/fence" # ranks on the lost host end themselves, should they still run
  )
  ! timeout -k 2 30 scancel "$castoff_member" 2>>"$castoff_output" || exit 0
done
CASTOFF_GUARD
  while read -r castoff_host; do
    ( # a step of its own, which the loss of other hosts does not end
      unset -v SLURM_HOSTFILE SLURM_DISTRIBUTION SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_MEM_PER_NODE
      exec srun --overlap --mem=0 --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist="$castoff_host" --no-kill \
        --wait=0 --export=ALL --cpu-bind=none --mpi=none --job-name=castoff-guard \
        "${castoff_run_checked[@]}" "$CASTOFF_ATTEMPT_DIR/guard.sh" "$castoff_looks" \
        </dev/null >>"$CASTOFF_LOG_DIR/hosts.log" 2>&1
    ) &
    castoff_guards+=("$!")
    disown "$!"
    castoff_looks=$((castoff_looks + 2)) # the other one acts if this one is lost, too
  done < <(grep -vxF -e "$castoff_script_host" <<<"$castoff_fit" | tail -n 2)
}
castoff_scheduler_finish() {
  if ((${#castoff_guards[@]})); then builtin kill -s KILL "${castoff_guards[@]}" 2>/dev/null || true; fi
  castoff_guards=()
}
#endif
