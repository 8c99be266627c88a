# --- Members that share this job ------------------------------------------------------------------
# This script runs first as the dispatcher, which starts it again for each member, in a slot: hosts, cores and devices
# that no other member has. When a member ends, the next one begins in its slot.
castoff_slots=() castoff_seats=() castoff_starts=() castoff_lost_slots=()
castoff_running=() castoff_in_slot=() castoff_ended_since=() castoff_cut_off='' castoff_full=''
castoff_next=0 castoff_stopping='' castoff_terminated='' castoff_unwell='' castoff_late='' castoff_next_look=0
castoff_dispatch() { # SHELL...: run this job's members, then exit; returns in a member's script
  castoff_unset_user_functions
  castoff_scheduler_locate
  if [[ ${CASTOFF_SLOT_OF-} == "$castoff_mark" ]]; then # this is a member
    export -n "${!CASTOFF_SLOT_@}" # jobs that the member submits are others
    castoff_seat=$CASTOFF_SLOT_SEAT
    return 0
  fi
  castoff_find_run_dir
  export CASTOFF_RUN_DIR
  shopt -u failglob # that nobody has asked for anything is not an error
  trap 'castoff_stopping=1 castoff_terminated=1; castoff_tell TERM' TERM INT HUP
  trap 'castoff_stopping=1; castoff_tell USR2' USR2
  (umask 077 && mkdir -p -- "$CASTOFF_RUN_DIR"/{attempts,logs})
#if copy
  castoff_follow
#endif
  castoff_end=$(castoff_job_end_time)
  castoff_make_slots
  mapfile -t castoff_waiting < <(castoff_members_of_job)
  castoff_shared=$CASTOFF_RUN_DIR/attempts/.shared-$castoff_job.$castoff_index
#ifdef castoff_scheduler_guard
  castoff_guard_dispatcher
#endif
  set +e # an error in one member's records must not end the others
#if attempts fence
  castoff_take_over
#endif
  if [[ -e $castoff_shared/begun ]]; then castoff_take_up; fi
  (umask 077 && mkdir -p -- "$castoff_shared" && : >"$castoff_shared/begun")
  while :; do
    castoff_reap
    castoff_fill "$@"
    ((${#castoff_running[@]})) || [[ -n $castoff_cut_off$castoff_full && -z $castoff_stopping ]] || break
    if ((SECONDS >= castoff_next_look)); then castoff_look; fi
    read -r -t 0.05 -u 9 _ # 9 never has input; traps run meanwhile
  done 9<> <(:)
  castoff_end_dispatch
}
castoff_make_slots() {
  local castoff_slot castoff_place castoff_groups=$((castoff_job_nodes / castoff_nodes))
  mapfile -t castoff_hosts < <(castoff_job_hosts)
  if ((${#castoff_hosts[@]} != castoff_job_nodes)); then
    echo "castoff: this script is for $castoff_job_nodes hosts, but the job has ${#castoff_hosts[@]}:" \
      "${castoff_hosts[*]}; render it anew" >&2
    exit 1
  fi
  for ((castoff_slot = 0; castoff_slot < castoff_at_once; castoff_slot++)); do
    castoff_slots+=("${castoff_hosts[*]:castoff_slot % castoff_groups * castoff_nodes:castoff_nodes}")
    castoff_place=$((castoff_slot / castoff_groups)) # among the members on these hosts
    castoff_seats+=($((castoff_place * castoff_ranks_per_node)))
    castoff_starts+=(0)
  done
}
castoff_members_of_job() { # prints the numbers of this job's members, each with the number of its first attempt
  local castoff_before=$(((${CASTOFF_ARRAY_OFFSET:-0} + castoff_index) * castoff_together))
#if copy
  if [[ -n ${CASTOFF_FOLLOWS-} ]]; then
    cat -- "$CASTOFF_RUN_DIR/attempts/.shared-$CASTOFF_FOLLOWS.$castoff_index/left"
    return
  fi
#endif
  if [[ -n ${CASTOFF_MEMBERS-} ]]; then
    cat -- "$CASTOFF_RUN_DIR/$CASTOFF_MEMBERS" # castoff resubmit lists those that it starts
  else
    castoff_members | sed 's/$/ 0/'
  fi | awk -v before="$castoff_before" -v count="$castoff_together" 'NR > before && NR <= before + count'
}
castoff_fill() { # SHELL...: start waiting members in free slots
  local castoff_slot castoff_line castoff_now
  if [[ -n $castoff_stopping$castoff_cut_off ]] || ((${#castoff_running[@]} >= castoff_at_once)); then return; fi
  for castoff_slot in "${!castoff_slots[@]}"; do
    if [[ -n ${castoff_running[castoff_slot]-}${castoff_lost_slots[castoff_slot]-} ]]; then continue; fi
    while ((castoff_next < ${#castoff_waiting[@]})); do
#ifdef castoff_scheduler_guard
      castoff_check_given_up
#endif
      printf -v castoff_now '%(%s)T' -1
      if [[ -e $CASTOFF_RUN_DIR/stop ]] ||
        [[ -n $castoff_end && $castoff_now -ge $((castoff_end - castoff_grace)) ]]; then
        castoff_stopping=1
        return
      fi
      if [[ -n $castoff_full ]]; then return; fi
      castoff_line=${castoff_waiting[castoff_next]}
      castoff_next=$((castoff_next + 1))
      castoff_start_member "$castoff_slot" "$castoff_line" "$@" && break
    done
  done
}
castoff_start_member() { # SLOT "MEMBER FIRST_ATTEMPT" SHELL...: fails if the member is over already
  local castoff_number=${2% *} castoff_first=${2#* } castoff_attempt castoff_ended
#if attempts fence
  castoff_check_dispatcher
#endif
  castoff_newest "$castoff_number" "$castoff_first"
  if ! castoff_is_due "$2"; then return 1; fi
  if [[ -e $CASTOFF_RUN_DIR/cancel-$castoff_number ]]; then
    castoff_record_unbegun "$castoff_number" cancelled 143 'cancelled before it began'
    return 1
  fi
  CASTOFF_SLOT_OF=$castoff_mark CASTOFF_SLOT_MEMBER=$castoff_number CASTOFF_SLOT_HOSTS=${castoff_slots[$1]} \
    CASTOFF_SLOT_SEAT=${castoff_seats[$1]} CASTOFF_SLOT_END=$castoff_end \
    CASTOFF_SLOT_PORT=$(($1 + castoff_at_once * castoff_starts[$1])) \
    CASTOFF_ATTEMPT=$castoff_first CASTOFF_FIRST_ATTEMPT=$castoff_first \
    "${@:3}" "$CASTOFF_RUN_DIR/job.sh" </dev/null >>"$CASTOFF_RUN_DIR/logs/job-$castoff_number.log" 2>&1 9>&- &
  castoff_running[$1]=$! castoff_in_slot[$1]=$2
  castoff_starts[$1]=$((castoff_starts[$1] + 1))
}
castoff_newest() { # MEMBER FIRST: sets the number and the ending of its newest attempt; no ending: it was cut off
  local castoff_folder=$CASTOFF_RUN_DIR/attempts/$1
  castoff_attempt=$2 castoff_ended='' castoff_text=''
  while [[ -e $castoff_folder.$((castoff_attempt + 1)) ]]; do castoff_attempt=$((castoff_attempt + 1)); done
  IFS= read -r -d '' castoff_text 2>/dev/null <"$castoff_folder.$castoff_attempt/ending.json"
  if [[ $castoff_text =~ \"ending\":\ *\"([a-z-]+)\" && $castoff_text != *\"restart\"* ]]; then
    castoff_ended=${BASH_REMATCH[1]}
  fi
}
castoff_is_due() { # "MEMBER FIRST_ATTEMPT" whose newest attempt is known: whether another one is to follow
#if rerun
  if [[ $castoff_ended == node-failure ]]; then ((castoff_attempt - ${1#* } < castoff_requeue_max)) && return; fi
#endif
  [[ $castoff_ended =~ ^(|resume)$ ]]
}
castoff_record_unbegun() { # MEMBER ENDING CODE REASON: of an attempt that has not begun
  if [[ -e $CASTOFF_RUN_DIR/attempts/$1.$castoff_attempt ]]; then castoff_attempt=$((castoff_attempt + 1)); fi
  (
    umask 077
    cd -- "$CASTOFF_RUN_DIR/attempts" && mkdir -p -- ".$1.new" &&
      printf '{"ending": "%s", "code": %s, "time": %(%s)T, "reason": "%s"}\n' "$2" "$3" -1 "$4" \
        >".$1.new/ending.json" &&
      mv -T -- ".$1.new" "$1.$castoff_attempt"
  )
}
castoff_reap() { # free the slots of members that have ended
  local castoff_slot castoff_code castoff_line castoff_attempt castoff_ended castoff_signals
  for castoff_slot in "${!castoff_running[@]}"; do
    if builtin kill -0 "${castoff_running[castoff_slot]}" 2>/dev/null; then continue; fi
#if attempts fence
    castoff_check_dispatcher
#endif
    builtin wait "${castoff_running[castoff_slot]}" 2>/dev/null
    castoff_code=$? castoff_line=${castoff_in_slot[castoff_slot]} castoff_signals=''
    # It was asked to stop before it listened: as if it had not begun.
    if [[ -n $castoff_stopping${castoff_ended_since[castoff_slot]-} && $castoff_code =~ ^14[03]$ ]]; then
      castoff_signals=1
    fi
    unset -v castoff_{running,in_slot,ended_since}"[castoff_slot]"
    castoff_newest "${castoff_line% *}" "${castoff_line#* }"
    if [[ -z $castoff_ended$castoff_signals ]]; then
      castoff_clear_slot "$castoff_slot" "$castoff_line"
      if [[ -n ${castoff_running[castoff_slot]-} ]]; then continue; fi
      castoff_newest "${castoff_line% *}" "${castoff_line#* }"
      if [[ -z $castoff_ended ]]; then castoff_full=$((SECONDS + 600)); fi # not even that can be recorded
    fi
    if castoff_is_due "$castoff_line"; then
      castoff_waiting+=("$castoff_line") # it resumes in this job while there is time, on another host if one was lost
    elif [[ $castoff_ended == walltime ]]; then
      castoff_late=1
    elif [[ $castoff_ended != 'done' ]]; then
      castoff_unwell=1
    fi
#ifdef castoff_job_hosts_now
    if ((castoff_code)) && ! castoff_lose_hosts; then
      if [[ -e $CASTOFF_RUN_DIR/attempts/${castoff_line% *}.$castoff_attempt/starting ]]; then castoff_cut_off=1; fi
    fi
#endif
  done
}
castoff_clear_slot() { # SLOT "MEMBER FIRST": its script was killed before it could end its ranks and record its ending
  local castoff_folder=$CASTOFF_RUN_DIR/attempts/${2% *}.$castoff_attempt
  castoff_unwell=1
  if [[ ! -d $castoff_folder ]]; then
    castoff_record_unbegun "${2% *}" failed "$castoff_code" "its script ended with code $castoff_code before it began"
    return
  fi
  castoff_end_ranks "$castoff_folder"
  (
    umask 077
    printf '{"ending": "failed", "code": %s, "time": %(%s)T, "reason": "its script was killed: exit code %s"}\n' \
      "$castoff_code" -1 "$castoff_code" >"$castoff_folder/.killed.json" &&
      mv -- "$castoff_folder/.killed.json" "$castoff_folder/ending.json"
  )
  castoff_attempt_processes=$(grep -lszxF -- "CASTOFF_ATTEMPT_DIR=$castoff_folder" /proc/[0-9]*/environ | cut -d / -f 3)
  # shellcheck disable=SC2086 # words
  builtin kill -s KILL $castoff_attempt_processes 2>/dev/null # its launcher, too
#if nodes
  if [[ ! -e $castoff_folder/launched ]]; then return; fi
  sleep $((2 * castoff_fence_every)) 9>&- & # it holds the slot until ranks on other hosts have ended, too
  castoff_running[$1]=$! castoff_in_slot[$1]=$2
#endif
}
castoff_look() { # for requests
  local castoff_slot castoff_file
  castoff_next_look=$((SECONDS + 2))
  if [[ -e $CASTOFF_RUN_DIR/stop ]]; then castoff_stopping=${castoff_stopping:-1}; fi
  if [[ -z $castoff_full ]]; then
    :
  elif head -c 100000 /dev/zero 2>/dev/null >"$castoff_shared/room"; then
    echo "castoff: the disk of the run directory was full, so members waited" >&2
    castoff_full=''
    rm -f -- "$castoff_shared/room"
  elif [[ ! -d $castoff_shared ]] || ((SECONDS >= castoff_full)); then
    echo "castoff: nothing can be written to the run directory, so no more members start" >&2
    castoff_full='' castoff_stopping=1
  fi
  for castoff_file in "$CASTOFF_RUN_DIR"/cancel-*; do
    for castoff_slot in "${!castoff_in_slot[@]}"; do
      if [[ ${castoff_in_slot[castoff_slot]% *} == "${castoff_file##*/cancel-}" ]]; then
        castoff_end_member "$castoff_slot"
      fi
    done
  done
#ifdef castoff_job_hosts_now
  if [[ -n $castoff_cut_off ]] && castoff_lose_hosts; then castoff_cut_off=''; fi
#endif
#ifdef castoff_job_hosts_due
  if castoff_job_hosts_due; then castoff_lose_hosts; fi
  for castoff_slot in "${!castoff_lost_slots[@]}"; do
    if [[ -n ${castoff_running[castoff_slot]-} ]]; then castoff_end_member "$castoff_slot"; fi
  done
#endif
}
castoff_end_member() { # SLOT: by TERM, and by KILL if it has not ended 20 s later
  local castoff_attempt castoff_ended castoff_line=${castoff_in_slot[$1]}
  if [[ -z ${castoff_ended_since[$1]-} ]]; then
    castoff_ended_since[$1]=$SECONDS
    builtin kill -s TERM "${castoff_running[$1]}" 2>/dev/null
  elif ((SECONDS >= castoff_ended_since[$1] + 20)); then
    castoff_newest "${castoff_line% *}" "${castoff_line#* }"
    castoff_end_ranks "$CASTOFF_RUN_DIR/attempts/${castoff_line% *}.$castoff_attempt"
  fi
}
castoff_end_ranks() { # FOLDER of an attempt: a process beside the ranks of each host heeds the fence
  if [[ -e $1/fence ]]; then echo over 1<>"$1/fence"; fi
#if !nodes !hosts
  # shellcheck disable=SC2046 # words
  builtin kill -s KILL $(castoff_left "$1" "$castoff_mark") 2>/dev/null
#endif
}
castoff_tell() { # SIGNAL to all members
  if ((${#castoff_running[@]})); then builtin kill -s "$1" "${castoff_running[@]}" 2>/dev/null || true; fi
}
castoff_end_dispatch() { # all members are over, or the rest has to wait for another job
  local castoff_line castoff_attempt castoff_ended castoff_ending=walltime castoff_code=75 castoff_left=()
  local castoff_why='its turn did not come before the job ended'
#if attempts fence
  castoff_check_dispatcher
#endif
#ifdef castoff_scheduler_guard
  castoff_check_given_up
#endif
  for castoff_line in "${castoff_waiting[@]:castoff_next}"; do
    castoff_newest "${castoff_line% *}" "${castoff_line#* }"
    if castoff_is_due "$castoff_line"; then castoff_left+=("$castoff_line"); fi
  done
#if requeue | copy
  if ((${#castoff_left[@]} && castoff_restarts < castoff_requeue_max)) &&
    [[ -z $castoff_terminated && ! -e $CASTOFF_RUN_DIR/stop ]] && castoff_hand_on; then exit 0; fi
#endif
  if [[ -e $CASTOFF_RUN_DIR/stop ]] ||
    [[ -n $castoff_terminated && (-z $castoff_end || $(date +%s) -lt $((castoff_end - 15))) ]]; then
    castoff_ending=cancelled castoff_code=143 castoff_why='stopped before it began'
  fi
  for castoff_line in "${castoff_left[@]}"; do
    castoff_newest "${castoff_line% *}" "${castoff_line#* }"
    if [[ -z $castoff_ended ]]; then
      castoff_record_unbegun "${castoff_line% *}" "$castoff_ending" "$castoff_code" "$castoff_why"
    fi
  done
#ifdef castoff_scheduler_finish
  castoff_scheduler_finish
#endif
#ifdef castoff_scheduler_guard
  echo gone 1<>"$CASTOFF_ATTEMPT_DIR/fence" # guards that are left end themselves
#endif
#if secrets
  CASTOFF_ARRAY_INDEX=-1 castoff_ending='done' castoff_remove_secrets
#endif
  if [[ -n $castoff_unwell ]]; then exit 1; fi
  if ((${#castoff_left[@]})); then exit "$castoff_code"; fi
  if [[ -n $castoff_late ]]; then exit 75; fi
  exit 0
}
# What a member asks its scheduler, the dispatcher answers.
castoff_scheduler_hosts() { tr ' ' '\n' <<<"$CASTOFF_SLOT_HOSTS"; }
castoff_scheduler_end_time() { echo "$CASTOFF_SLOT_END"; }
#if requeue | copy
castoff_scheduler_requeue() { :; } # the dispatcher starts it again, in this job or the next
#endif
