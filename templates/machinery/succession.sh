# --- A shared job that loses hosts, or is followed by another job ----------------------------------
# What a dispatcher needs beyond a job that runs once to its end: another start of its job may take over from it, and
# another job may run what it leaves.
#if attempts fence
castoff_take_over() { # the scheduler may start this job again while its dispatcher lives on a host that it has lost
  local castoff_line castoff_attempt castoff_ended castoff_fence castoff_before=''
  castoff_dispatcher=$CASTOFF_RUN_DIR/attempts/.dispatcher-$castoff_job.$castoff_index
  castoff_this="$(hostname) $$ $RANDOM$RANDOM"
  if [[ -e $castoff_dispatcher ]]; then castoff_before=1; fi
  echo "$castoff_this" >"$castoff_dispatcher.new" && mv -- "$castoff_dispatcher.new" "$castoff_dispatcher"
  if [[ -z $castoff_before ]]; then return; fi
  castoff_before=''
  for castoff_line in "${castoff_waiting[@]}"; do
    castoff_newest "${castoff_line% *}" "${castoff_line#* }"
    castoff_fence=$CASTOFF_RUN_DIR/attempts/${castoff_line% *}.$castoff_attempt/fence
    if [[ -z $castoff_ended && $(cat "$castoff_fence" 2>/dev/null) == live ]]; then
      echo next 1<>"$castoff_fence" && castoff_before=$((SECONDS + 2 * castoff_fence_every))
    fi
  done
  if [[ -z $castoff_before ]]; then return; fi
  echo "castoff: members of this job's last start may still run; in $((castoff_before - SECONDS)) s they have ended"
  while ((SECONDS < castoff_before)); do read -r -t 1 -u 9 _; done 9<> <(:)
}
castoff_check_dispatcher() { # end this dispatcher if there is another: it must not judge that one's members
  local castoff_now=''
  IFS= read -r castoff_now 2>/dev/null <"$castoff_dispatcher"
  if [[ -z $castoff_now || $castoff_now == "$castoff_this" ]]; then return; fi # or no answer
  echo "castoff: this job has begun again, so its former dispatcher ends itself" >&2
  builtin exit 1
}
#endif
#ifdef castoff_scheduler_guard
castoff_guard_dispatcher() { # its host may be lost, and the job continue without it
  export CASTOFF_ATTEMPT_DIR=$castoff_shared.$castoff_restarts
  CASTOFF_LOG_DIR=$CASTOFF_RUN_DIR/logs
  mkdir -p -m 700 -- "$CASTOFF_ATTEMPT_DIR"
  echo live >"$CASTOFF_ATTEMPT_DIR/fence"
  castoff_fit=$(printf '%s\n' "${castoff_hosts[@]}")
  castoff_scheduler_guard
}
#endif
#if copy
castoff_follow() { # a copy runs what the job before it has left; a qsub without an answer may have submitted two copies
  local castoff_before=$CASTOFF_RUN_DIR/attempts/.shared-${CASTOFF_FOLLOWS-}.$castoff_index
  export CASTOFF_ATTEMPT=${CASTOFF_ATTEMPT:-0} CASTOFF_FIRST_ATTEMPT=0 # here they count the copies
  castoff_restarts=$CASTOFF_ATTEMPT
  if [[ -z ${CASTOFF_FOLLOWS-} ]]; then return; fi
  (set -C && umask 077 && printf '{"job": "%s"}\n' "$castoff_job" >"$castoff_before/follower.json") 2>/dev/null || true
  if ! grep -qF "\"$castoff_job\"" "$castoff_before/follower.json"; then
    echo "castoff: job $castoff_job does not begin: another copy of job $CASTOFF_FOLLOWS has begun"
    exit 0
  fi
}
#endif
#ifdef castoff_scheduler_guard
castoff_check_given_up() { # end this dispatcher if its job was given up, or resubmitted, while its host was cut off
  local castoff_now=''
  IFS= read -r castoff_now 2>/dev/null <"$CASTOFF_ATTEMPT_DIR/fence"
  if [[ ! $castoff_now =~ ^(over|next)$ ]]; then return; fi
  echo "castoff: job $castoff_job was given up, so its dispatcher ends itself" >&2
  castoff_tell KILL
  castoff_scheduler_finish
  builtin exit 1
}
#endif
castoff_take_up() { # the scheduler has started this job again: members that ended with it continue
  local castoff_place castoff_line castoff_attempt castoff_ended castoff_text
  for castoff_place in "${!castoff_waiting[@]}"; do
    castoff_line=${castoff_waiting[castoff_place]}
    castoff_newest "${castoff_line% *}" "${castoff_line#* }"
    if [[ ! -e $CASTOFF_RUN_DIR/cancel-${castoff_line% *} ]] &&
      [[ $castoff_ended =~ ^(cancelled|walltime|node-failure)$ || $castoff_text =~ \"code\":\ 1(37|43), ]]; then
      castoff_waiting[castoff_place]="${castoff_line% *} $((castoff_attempt + 1))"
    fi
  done
}
#ifdef castoff_job_hosts_now
castoff_has_lost_host() { # whether a host of this member, or its script's, is not in the job any more
  local castoff_hosts
  castoff_hosts=$(castoff_job_hosts_now) ||
    if [[ -e $CASTOFF_ATTEMPT_DIR/starting ]]; then return 0; fi # cut off itself
  [[ -n $castoff_hosts ]] &&
    { castoff_scheduler_hosts && castoff_job_hosts | sed -n 1p; } | grep -vxF -f <(echo "$castoff_hosts") >/dev/null
}
castoff_lose_hosts() { # start no more members on hosts that the job has lost
  local castoff_slot castoff_host castoff_hosts
  castoff_hosts=$(castoff_job_hosts_now) || return
  if [[ -z $castoff_hosts ]]; then return; fi
  castoff_host=${castoff_slots[0]%% *}
  if [[ $'\n'$castoff_hosts$'\n' != *$'\n'"$castoff_host"$'\n'* ]]; then # its own, so the job ends or begins again
    echo "castoff: the job has lost $castoff_host, where its script runs, so no more members start" >&2
    builtin exit 1
  fi
  for castoff_slot in "${!castoff_slots[@]}"; do
    for castoff_host in ${castoff_slots[castoff_slot]}; do
      if [[ -z ${castoff_lost_slots[castoff_slot]-} && $'\n'$castoff_hosts$'\n' != *$'\n'"$castoff_host"$'\n'* ]]; then
        echo "castoff: the job has lost $castoff_host, so no more members start there" >&2
        castoff_lost_slots[castoff_slot]=1
      fi
    done
  done
}
#endif
#if copy
castoff_hand_on() { # a copy of this job is to run the members in castoff_left
  local CASTOFF_DEADLINE=$castoff_end CASTOFF_ATTEMPT_DIR=$castoff_shared
  (umask 077 && printf '%s\n' "${castoff_left[@]}" >"$castoff_shared/left") && castoff_job_requeue
}
#elif requeue
castoff_hand_on() { # the members that are to continue have no ending
  rm -f -- "$castoff_shared/begun"
  castoff_job_requeue
}
#endif
