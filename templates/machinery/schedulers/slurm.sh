# --- Slurm ----------------------------------------------------------------------------------------
castoff_scheduler_locate() {
#if array
  castoff_job=${SLURM_ARRAY_JOB_ID:?castoff: submit this script with sbatch}
  castoff_index=$SLURM_ARRAY_TASK_ID
  castoff_member=${castoff_job}_$castoff_index # SLURM_JOB_ID may mean the whole array
#else
  castoff_job=${SLURM_JOB_ID:?castoff: submit this script with sbatch}
  castoff_index=0 castoff_member=$castoff_job
#endif
  castoff_cluster=${SLURM_CLUSTER_NAME:-} castoff_submit_dir=$SLURM_SUBMIT_DIR
  castoff_restarts=${SLURM_RESTART_COUNT:-0}
  castoff_mark=SLURM_JOB_ID=$SLURM_JOB_ID # unlike other variables, jobs submitted by ranks do not inherit it
}
#if array !together
castoff_scheduler_choose_log() {
  if [[ -n ${CASTOFF_ARRAY_OFFSET:-} ]]; then # Slurm counts each part from 0, and would name the log accordingly
    exec >>"$CASTOFF_RUN_DIR/logs/job-$CASTOFF_ARRAY_INDEX.log" 2>&1
    export SLURM_ARRAY_TASK_ID=$CASTOFF_ARRAY_INDEX # a unique number for programs that read Slurm's variable
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
#if !together
castoff_scheduler_end_time() { echo "${SLURM_JOB_END_TIME:-$(castoff_scheduler_end_now)}"; } # set since Slurm 23.02
#endif
#if script
castoff_scheduler_begin() { # srun would pass on the variables of sbatch --export, which include castoff's
  local castoff_exported=,${SLURM_EXPORT_ENV-}
  while [[ $castoff_exported =~ ,CASTOFF_[A-Z_]+ ]]; do castoff_exported=${castoff_exported/"${BASH_REMATCH[0]}"/}; done
  if [[ -n ${SLURM_EXPORT_ENV-} ]]; then
    castoff_exported=${castoff_exported#,}
    SLURM_EXPORT_ENV=${castoff_exported:-NONE}
  fi
}
#else
#if together
castoff_job_hosts() { scontrol show hostnames "$SLURM_JOB_NODELIST"; }
castoff_job_hosts_now() { # with --no-kill, Slurm takes a lost host out of the job
  local castoff_said
  castoff_said=$(timeout -k 2 30 squeue --noheader --job "$castoff_member" --format '%T %N' 2>/dev/null) || return 1
  if [[ $castoff_said == RUNNING* ]]; then scontrol show hostnames "${castoff_said#* }"; fi
}
castoff_job_end_time() { echo "${SLURM_JOB_END_TIME:-$(castoff_scheduler_end_now)}"; } # set since Slurm 23.02
#else
castoff_scheduler_hosts() { scontrol show hostnames "$SLURM_JOB_NODELIST"; }
#endif
#if driver
castoff_scheduler_clear_env() { unset -v SLURM_NTASKS SLURM_NPROCS "${!PBS_@}"; } # Lightning would see a rank
#else
castoff_scheduler_clear_env() { unset -v "${!PBS_@}"; } # they would mislead the launcher
#endif
# Called in a job or step, sbatch passes on its variables despite --export, and srun obeys them: all ranks would be
# bound to the CPUs of that step (seen on 22.05.8), or srun would wait forever (SLURM_TRES_PER_TASK, 26.05.5). So
# options for sharing and binding are kept only if this script has their directive.
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
  unset -v SLURM_EXPORT_ENV # from sbatch --export: srun and sbatch in this job would start with an empty environment
}
#endif
castoff_scheduler_end_now() { # asks Slurm, since scontrol may have changed it; prints nothing if unknown
  local castoff_end
  castoff_end=$(timeout 10 squeue --noheader --job "$castoff_member" --format %e 2>/dev/null || true)
  date -d "${castoff_end:-unknown}" +%s 2>/dev/null || true
}
#if requeue
#if together
castoff_job_requeue() { # Slurm then ends this job and scontrol, perhaps before it answers
#else
castoff_scheduler_requeue() { # Slurm then ends this job and scontrol, perhaps before it answers
#endif
  local castoff_code castoff_said castoff_last=$((SECONDS + ${castoff_grace:-120}))
  castoff_terminated=
#if !rerun
  timeout -k 2 30 scontrol update "JobId=$castoff_member" Requeue=1 >/dev/null 2>&1 || true # or the requeue is refused
#endif
  while :; do
    castoff_code=0
    castoff_said=$(timeout -k 2 30 scontrol requeue "$castoff_member" 2>&1) || castoff_code=$?
    if ((castoff_code == 0 || castoff_code == 143)) || [[ -n $castoff_terminated ]]; then return 0; fi
    echo "castoff: scontrol requeue $castoff_member: ${castoff_said:-no answer (exit code $castoff_code)}" >&2
    if [[ $castoff_said == *denied* || $castoff_said == *disabled* ]]; then return 1; fi
    # A request without an answer may still take effect, and a second one could end the next attempt: so repeat it
    # only if Slurm reports that this attempt still runs.
    until castoff_said=$(castoff_as_slurm_has_it); do
      if [[ -n $castoff_terminated ]]; then return 0; fi
      if ((SECONDS >= castoff_last)) || [[ -e $CASTOFF_RUN_DIR/stop ]]; then return 1; fi
      read -r -t 1 _ <> <(:) || true # unlike sleep, runs traps
    done
    if [[ ! $castoff_said =~ ^RUNNING\ +"${SLURM_RESTART_COUNT:-0}"\ *$ ]]; then return 0; fi
    if ((SECONDS >= castoff_last)) || [[ -e $CASTOFF_RUN_DIR/stop ]]; then return 1; fi
    read -r -t 1 _ <> <(:) || true # unlike sleep, runs traps
  done
}
castoff_as_slurm_has_it() { # prints the state of this job, and its number of restarts
  timeout -k 2 30 squeue --noheader --job "$castoff_member" --Format State:20,RestartCnt:20 2>/dev/null
}
#endif
#if spares | together nodes
# With --no-kill, Slurm removes a failed host from the job. If this script ran on it, the job would run idle until its
# walltime. So two other hosts check whether the script's host is still in the job.
castoff_guards=()
castoff_scheduler_guard() { # start the guards of this attempt
  local castoff_script_host=${SLURMD_NODENAME:-$(hostname)} castoff_output castoff_requeues=''
  local castoff_looks=3 castoff_host
  castoff_scheduler_finish
  castoff_output=$(readlink /proc/$$/fd/1 || true)
  if [[ $castoff_output != /* ]]; then castoff_output=/dev/null; fi # it is not a file, but a pipe
#if together requeue rerun
  if ((castoff_restarts < castoff_requeue_max)); then castoff_requeues=1; fi
#elif requeue rerun
  if (($(castoff_count_requeues) < castoff_requeue_max)); then castoff_requeues=1; fi
#endif
#if together
  local castoff_started_as # what the starts of this job's members have in common
  printf -v castoff_started_as '"job": "%s"%s, "host": "%s"' "$castoff_job" \
    "${castoff_cluster:+, \"cluster\": \"$castoff_cluster\"}" "$(hostname)"
  castoff_write guard.sh castoff_member castoff_script_host castoff_output castoff_requeues castoff_started_as \
    <<'CASTOFF_GUARD'
#else
  castoff_write guard.sh castoff_member castoff_script_host castoff_output castoff_requeues <<'CASTOFF_GUARD'
#endif
castoff_working() { # whether the script's host is still in the job, or ranks run without it
  castoff_job_now=$(timeout -k 2 30 squeue --noheader --job "$castoff_member" --format '%T %N' 2>/dev/null) || return 0
  case $castoff_job_now in RUNNING*) ;; *) return 0 ;; esac
  castoff_hosts_now=$(scontrol show hostnames "${castoff_job_now#* }" 2>/dev/null) || return 0
  ! echo "$castoff_hosts_now" | grep -qxF "$castoff_script_host" || return 0
#if together
  return 1 # nobody could record how members end that run without it
#else
  castoff_steps=$(timeout -k 2 30 squeue --noheader --steps --job "$castoff_member" --format '%i %j' 2>/dev/null) ||
    return 0
  echo "$castoff_steps" | grep -qvE '^ *$|^[^ ]*[.](batch|extern|interactive) |castoff-guard *$'
#endif
}
castoff_idle=0 castoff_slept=0 castoff_looked=
while sleep 1; do
  # After an ending is recorded, Slurm ends the job or another attempt begins. But a script on a host that is cut off
  # from Slurm can also record one.
  if [ -z "$castoff_looked" ] && [ -e "$CASTOFF_ATTEMPT_DIR/ending.json" ]; then
    castoff_looked=1
    ! castoff_working || exit 0
  fi
  castoff_word=$(cat "$CASTOFF_ATTEMPT_DIR/fence" 2>/dev/null)
  [ "$castoff_word" != next ] || exit 0 # another attempt has begun, perhaps in this requeued job
#if together
  [ "$castoff_word" != gone ] || exit 0
#endif
  castoff_slept=$((castoff_slept + 1))
  [ "$castoff_slept" -ge 20 ] || continue # do not burden slurmctld
  castoff_slept=0 castoff_idle=$((castoff_idle + 1))
  if castoff_working; then
    [ -z "$castoff_looked" ] || exit 0
    castoff_idle=0
  fi
  [ "$castoff_idle" -ge "$1" ] || continue # between attempts no rank runs for a while, even with a script
  castoff_why="$castoff_script_host, the host of the job's script, was lost"
  [ ! -e "$CASTOFF_ATTEMPT_DIR/ending.json" ] ||
    grep -q '"node-failure"\|"restart"' "$CASTOFF_ATTEMPT_DIR/ending.json" || castoff_requeues=
  if [ -n "$castoff_requeues" ]; then
    echo "castoff: $castoff_why: the job is requeued" >>"$castoff_output"
    rm -f "$CASTOFF_ATTEMPT_DIR/ending.json" # or the run would count as over
#if together
    echo over 1<>"$CASTOFF_ATTEMPT_DIR/fence" # the dispatcher may still live
#endif
    castoff_code=0
    timeout -k 2 30 scontrol requeue "$castoff_member" >>"$castoff_output" 2>&1 || castoff_code=$?
    case $castoff_code in
      0) exit 0 ;;
      124 | 137) continue ;; # no answer: it may still take effect, so check the state again
    esac
  fi
  echo "castoff: $castoff_why: the job is ended" >>"$castoff_output"
  (
    umask 077
    [ -e "$CASTOFF_ATTEMPT_DIR/ending.json" ] || {
      printf '{"ending": "node-failure", "code": 1, "time": %s, "reason": "%s"}\n' "$(date +%s)" "$castoff_why" \
        >"$CASTOFF_ATTEMPT_DIR/.guard.json" && mv "$CASTOFF_ATTEMPT_DIR/.guard.json" "$CASTOFF_ATTEMPT_DIR/ending.json"
    }
    echo over 1<>"$CASTOFF_ATTEMPT_DIR/fence" # ranks still running on the lost host end themselves
#if together
    for castoff_folder in "${CASTOFF_ATTEMPT_DIR%/*}"/[0-9]*; do # of the members that ran
      [ ! -e "$castoff_folder/ending.json" ] || continue
      grep -qF "$castoff_started_as" "$castoff_folder/start.json" || continue
      printf '{"ending": "node-failure", "code": 1, "time": %s, "reason": "%s"}\n' "$(date +%s)" "$castoff_why" \
        >"$castoff_folder/.guard.json" && mv "$castoff_folder/.guard.json" "$castoff_folder/ending.json"
      echo over 1<>"$castoff_folder/fence"
    done
#endif
  )
  ! timeout -k 2 30 scancel "$castoff_member" 2>>"$castoff_output" || exit 0
done
CASTOFF_GUARD
  while read -r castoff_host; do
    ( # in a separate step, which survives the loss of other hosts
      unset -v SLURM_HOSTFILE SLURM_DISTRIBUTION SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU SLURM_MEM_PER_NODE
      exec srun --overlap --mem=0 --nodes=1 --ntasks=1 --ntasks-per-node=1 --nodelist="$castoff_host" --no-kill \
        --wait=0 --export=ALL --cpu-bind=none --mpi=none --job-name=castoff-guard \
        "${castoff_run_checked[@]}" "$CASTOFF_ATTEMPT_DIR/guard.sh" "$castoff_looks" \
        </dev/null >>"$CASTOFF_LOG_DIR/hosts.log" 2>&1
    ) &
    castoff_guards+=("$!")
    disown "$!"
    castoff_looks=$((castoff_looks + 2)) # the second guard acts if the first one's host is lost, too
  done < <(grep -vxF -e "$castoff_script_host" <<<"$castoff_fit" | tail -n 2)
}
castoff_scheduler_finish() {
  if ((${#castoff_guards[@]})); then builtin kill -s KILL "${castoff_guards[@]}" 2>/dev/null || true; fi
  castoff_guards=()
}
#endif
