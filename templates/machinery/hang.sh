# --- Hangs: ranks without any sign of life --------------------------------------------------------
castoff_reason=
castoff_watch_hang() {
  castoff_await_hang 9<> <(:) & # 9 never has input
  castoff_hang_watcher=$!
  disown "$castoff_hang_watcher"
}
castoff_end_hang_watch() {
  builtin kill -s KILL "$castoff_hang_watcher" 2>/dev/null || true
}
castoff_signs_of_life() { # prints text that changes when any rank writes output or makes progress
  { : >"$CASTOFF_LOG_DIR/.look" && rm "$CASTOFF_LOG_DIR/.look"; } 2>/dev/null || true # makes NFS refresh the folder
  {
    find "$CASTOFF_LOG_DIR" "$CASTOFF_METRICS_FILE" -type f -printf '%s %f\n' 2>/dev/null | sort
#if reported_progress
    cat "$CASTOFF_PROGRESS_FILE" 2>/dev/null
#else
    if [[ $castoff_progress != none ]]; then find -H "$castoff_progress" -printf '%T@ %s %p\n' 2>/dev/null | sort; fi
#endif
  } | cksum
}
castoff_await_hang() {
  local castoff_last='' castoff_since castoff_now castoff_signs castoff_between=$((castoff_hang / 10))
  set +e # unreadable files are no sign of life
  castoff_since=$(date +%s)
  castoff_between=$((castoff_between > 30 ? 30 : castoff_between < 1 ? 1 : castoff_between))
  while builtin kill -0 "$castoff_launcher" 2>/dev/null && [[ ! -s $CASTOFF_FAILURE_FILE ]]; do
    castoff_signs=$(castoff_signs_of_life)
#if nodes !here !driver
    if [[ -e $CASTOFF_ATTEMPT_DIR/starting ]]; then castoff_last=; fi # unstarted.sh watches ranks that have not started
#endif
    castoff_now=$(date +%s)
    if [[ $castoff_signs != "$castoff_last" ]]; then
      castoff_last=$castoff_signs castoff_since=$castoff_now
    elif ((castoff_now - castoff_since >= castoff_hang)); then
      castoff_end_hang
      return
    fi
    read -r -t "$castoff_between" -u 9 _ || true
  done
}
castoff_end_hang() { # find the hanging rank from all ranks' stacks, and end the launcher
  local castoff_rank castoff_host castoff_words
  echo "castoff: no output and no progress for $castoff_hang s (restart.hang): the ranks' stacks are collected" >&2
  castoff_collect_stacks
  IFS='|' read -r castoff_rank castoff_host castoff_words < <(castoff_compare_stacks) || true
#if many_ranks !container
  find "$CASTOFF_STACK_DIR" -name 'node-*.txt' -exec cat {} + |
    sed -n "/^--- rank ${castoff_rank:-0} ---\$/,/^--- rank /{/^--- rank /!p}" \
      >"$CASTOFF_STACK_DIR/rank-$(printf %05d "${castoff_rank:-0}").txt"
#endif
  if [[ -n $castoff_rank ]]; then
    castoff_words="rank $castoff_rank${castoff_host:+ on $castoff_host} $castoff_words"
  fi
#if spares
  if [[ -n $castoff_host && ($castoff_words == *"no sign of itself"* || $castoff_words == *"in state"*) ]]; then
    castoff_set_aside "$castoff_host" "it hung: $castoff_words"
  fi
#endif
  castoff_words="hang: no output and no progress for $castoff_hang s; ${castoff_words:-no rank was found}"
  if [[ ! -s $CASTOFF_PROGRESS_FILE && ! -s $CASTOFF_METRICS_FILE && ! -s $CASTOFF_ATTEMPT_DIR/ended-well &&
    -z $(find "$CASTOFF_LOG_DIR" -maxdepth 1 -type f -size +0 -print -quit) ]]; then
    castoff_words+="; no rank has written anything: restart.hang has to be longer than the start of the program"
  fi
  echo "$castoff_words" >"$CASTOFF_ATTEMPT_DIR/hang"
  (set -C && printf '{"rank": %s, "host": "%s", "code": 1, "signal": null, "log": "%s", "time": %s, %s}\n' \
    "${castoff_rank:-null}" "${castoff_host:-$(hostname)}" "$(castoff_hang_log "$castoff_rank")" \
    "$(date +%s)" '"reason": "hang"' \
    >"$CASTOFF_FAILURE_FILE") 2>/dev/null || true
  echo "castoff: $castoff_words; all stacks are in $CASTOFF_STACK_DIR" >&2
#if here
  builtin kill -s TERM "$castoff_launcher" 2>/dev/null || true
  read -r -t 1 -u 9 _ || true
  builtin kill -s TERM "$castoff_launcher" 2>/dev/null || true # a second TERM makes it kill its ranks
#else
  castoff_end_launcher
#endif
}
castoff_hang_log() { # RANK: prints the name of its log
#if per_rank_logs
  if [[ -n $1 && $1 != null ]]; then printf 'rank-%05d.log' "$1"; else echo rank-00000.log; fi
#else
  echo node-00000.log
#endif
}
castoff_collect_stacks() { # prints a line for each rank: RANK, HOST, STATE, and its place in the program
  castoff_write_stacks
#if hosts
  castoff_ask "$CASTOFF_ATTEMPT_DIR/hosts" "$CASTOFF_ATTEMPT_DIR/stacks.sh"
  sed 's/^[0-9]* //' "$castoff_answers" >"$CASTOFF_ATTEMPT_DIR/stacks"
#else
  timeout -k 2 60 "${castoff_run_checked[@]}" "$CASTOFF_ATTEMPT_DIR/stacks.sh" >"$CASTOFF_ATTEMPT_DIR/stacks" || true
#endif
}
castoff_compare_stacks() { # prints RANK HOST WORDS of the rank that differs; no rank if none does
  local castoff_began
  castoff_began=$(stat --format %Y -- "$CASTOFF_ATTEMPT_DIR/start.json")
#if many_ranks
  find "$CASTOFF_ATTEMPT_DIR/ended" \( -name 'ranks-*' -o -name 'all-*' \) -exec cat {} + |
    tr ' ' '\t' >"$CASTOFF_ATTEMPT_DIR/ended-well" || true
#else
  find "$CASTOFF_ATTEMPT_DIR/ended" -name '[0-9]*' -printf '%f\t%T@\n' >"$CASTOFF_ATTEMPT_DIR/ended-well" || true
#endif
  awk -v "ranks=$castoff_ranks" -v "most=$castoff_ranks_per_node" -v "full=$castoff_full_nodes" \
    -v "began=$castoff_began" '
    BEGIN {
      FS = "\t"
      means["T"] = means["t"] = "stopped"
      means["D"] = "waiting in the kernel"
      means["Z"] = "dead"
    }
    FILENAME ~ /ended-well$/ { over[$1] = int($2 - began); next }
    FILENAME ~ /hosts$/ { hosts[FNR - 1] = $0; next }
    NF >= 4 { seen[$1]; host[$1] = $2; state[$1] = $3; place[$1] = $4; count[$4]++ }
    END {
      for (rank = 0; rank < ranks; rank++)
        if (!(rank in seen)) {
          if (!(rank in over)) missing[++lost] = rank
          else {
            if (++ended <= 3) who = who (ended > 1 ? ", " : "") rank
            if (ended == 1 || over[rank] < first) first = over[rank]
          }
        }
      left = ranks - ended
      if (ended) besides = "; rank" (ended > 1 ? "s " : " ") who (ended > 3 ? " and " ended - 3 " more" : "") \
        (ended > 1 ? " have ended well, the first" : " has ended well,") " after " first " s"
      if (lost && lost < left) {
        rank = missing[1]
        node = rank < most * full ? int(rank / most) : full + int((rank - most * full) / (most - 1))
        print rank "|" hosts[node] "|gave no sign of itself, and " left - lost " others did" besides
        exit
      }
      for (rank = 0; rank < ranks; rank++)
        if (state[rank] in means) {
          print rank "|" host[rank] "|is in state " state[rank] " (" means[state[rank]] ")" \
            (place[rank] == "" ? "" : ": " place[rank]) besides
          exit
        }
      for (one in count) if (one ~ /\(.*:[0-9]+\)$/) python = 1
      if (!python) besides = besides "; with py-spy on the PATH of the job, castoff shows where that is in Python"
      for (rank = 0; rank < ranks; rank++)
        if (rank in seen && count[place[rank]] > many) { many = count[place[rank]]; usual = place[rank] }
      least = ranks + 1
      for (rank = ranks - 1; rank >= 0; rank--)
        if (rank in seen && place[rank] != usual && count[place[rank]] <= least) {
          least = count[place[rank]]
          odd = rank
        }
      if (least <= ranks)
        print odd "|" host[odd] "|" is(place[odd], 1) ", and " many " of " left " " is(usual, many) besides
      else if (left == 1 && ended) for (rank in seen) print rank "|" host[rank] "|" is(usual, 1) besides
      else if (many && usual == "") print "||it is not known where they are" besides
      else if (many) print "||" (ranks == 1 ? "it " : ended ? "all others " : "all ranks ") is(usual, ranks) besides
    }
    function is(where, number) { # whether it is the place of so many ranks
      if (where == "") return number > 1 ? "are at unknown places" : "is at an unknown place"
      if (where !~ /^waits for /) return (number > 1 ? "are at " : "is at ") where
      if (number > 1) sub(/^waits/, "wait", where)
      return where
    }
#if here
  ' "$CASTOFF_ATTEMPT_DIR/ended-well" "$CASTOFF_ATTEMPT_DIR/stacks"
#else
  ' "$CASTOFF_ATTEMPT_DIR/ended-well" "$CASTOFF_ATTEMPT_DIR/hosts" "$CASTOFF_ATTEMPT_DIR/stacks"
#endif
}
castoff_write_stacks() { # write stacks.sh, which runs on each host
#if many_ranks !container
  castoff_write stacks.sh castoff_launcher_name castoff_mark castoff_local_stacks <<'CASTOFF_STACKS'
#elif fence
  castoff_write stacks.sh castoff_launcher_name castoff_mark <<'CASTOFF_STACKS'
#else
  castoff_write stacks.sh castoff_launcher_name <<'CASTOFF_STACKS'
#endif
castoff_process=0 # index of this host
#if many_ranks !container
castoff_all_stacks=$CASTOFF_STACK_DIR castoff_numbers=''
[ ! -O "${TMPDIR:-/tmp}/$castoff_local_stacks" ] || CASTOFF_STACK_DIR=${TMPDIR:-/tmp}/$castoff_local_stacks
#endif
#if hosts
castoff_started='' castoff_beside_it='' castoff_node='' # not set by every launcher
#include launcher
castoff_name=${castoff_node:-$(sed -n "$((castoff_process + 1))p" "$1")}
! castoff_line=$(grep -nxF -m 1 -- "$castoff_name" "$CASTOFF_ATTEMPT_DIR/hosts") || # it may be asked alone
  castoff_process=$((${castoff_line%%:*} - 1))
#endif
castoff_ranks() { # prints process and number of each rank on this host: the topmost process with its variable
#if torchrun
  castoff_knows=TORCHELASTIC_RUN_ID # torchrun itself may have a RANK
#else
  castoff_knows=RANK
#endif
  grep -lsF -- "CASTOFF_ATTEMPT_DIR=$CASTOFF_ATTEMPT_DIR" /proc/[0-9]*/environ | while read -r castoff_file; do
    castoff_pid=${castoff_file#/proc/} castoff_pid=${castoff_pid%/*}
    castoff_rank=$({ tr "\000" "\n" <"$castoff_file"; } 2>/dev/null | awk -v "node=$castoff_process" \
#if fence
      -v "knows=$castoff_knows" -v "mark=$castoff_mark" '
      BEGIN { FS = "=" }
      $0 == mark { ours = 1 } # otherwise the process belongs to a job that a rank has submitted
      $1 == knows { known = 1 } $1 == "RANK" { rank = $2 } $1 == "NODE_RANK" && $2 != node { other = 1 }
      END { if (known && ours && !other) print rank }')
#else
      -v "knows=$castoff_knows" '
      BEGIN { FS = "=" }
      $1 == knows { known = 1 } $1 == "RANK" { rank = $2 } $1 == "NODE_RANK" && $2 != node { other = 1 }
      END { if (known && !other) print rank }')
#endif
    castoff_parent=$(sed 's/.*) . \([0-9]*\) .*/\1/' "/proc/$castoff_pid/stat" 2>/dev/null)
    [ -z "$castoff_rank" ] || [ -z "$castoff_parent" ] || tr '\000' '\n' <"/proc/$castoff_parent/environ" 2>/dev/null |
      grep -q "^$castoff_knows=" || echo "$castoff_pid $castoff_rank"
  done
}
castoff_state() { sed 's/.*) \(.\) .*/\1/' "/proc/$1/stat" 2>/dev/null; }
castoff_family() { # PID: prints it and its descendants, outermost first; for a preload client its forked rank
  cat /proc/[0-9]*/stat 2>/dev/null | LC_ALL=C sed -n 's/^\([0-9]*\) (\(.*\)) . \([0-9]*\) .*/\1 \3 \2/p' |
    awk -v "top=$1" '
      { below[$2] = below[$2] " " $1 }
      $3 ~ /^castoff:[0-9]+$/ { forked[$1] = substr($3, 9) }
      END {
        queue[count = 1] = top
        for (at = 1; at <= count; at++) {
          if (seen[queue[at]]++) continue
          if (!(queue[at] in forked)) print queue[at]
          number = split(forked[queue[at]] below[queue[at]], children, " ")
          for (child = 1; child <= number; child++) queue[++count] = children[child]
        }
      }'
}
castoff_has_quit() { # PID MASK: whether it catches (SigCgt) or ignores (SigIgn) QUIT
  grep -qE "^$2:.*[4567cdef]\$" "/proc/$1/status" 2>/dev/null # bit 2 of the lowest four is signal 3
}
#if many_ranks !container
castoff_keeps_file() { find "/proc/$1/fd" -lname "*/$castoff_local_stacks/rank-*.txt" 2>/dev/null | grep -q .; }
#else
castoff_keeps_file() { find "/proc/$1/fd" -lname '*/stacks/rank-*.txt' 2>/dev/null | grep -q .; }
#endif
castoff_answers_quit() { # PID: whether QUIT would end neither it nor a process to which it passes QUIT, as timeout does
  castoff_has_quit "$1" SigCgt || return
  castoff_keeps_file "$1" || for castoff_other in $(castoff_family "$1"); do
    castoff_has_quit "$castoff_other" 'Sig(Cgt|Ign)' || return
  done
}
castoff_program() { # PID: prints the descendant whose stacks matter, since the first process may be a wrapper
  castoff_asked='' castoff_python=''
  for castoff_one in $(castoff_family "$1"); do # a forked worker, which has its parent's files, comes after the parent
    case $(castoff_state "$castoff_one") in
      [Tt]) echo "$castoff_one" && return ;;
    esac
    if castoff_answers_quit "$castoff_one"; then
      ! castoff_keeps_file "$castoff_one" || { echo "$castoff_one" && return; }
      castoff_asked=${castoff_asked:-$castoff_one}
    fi
    case $(readlink "/proc/$castoff_one/exe") in
      */python*) castoff_python=${castoff_python:-$castoff_one} ;;
    esac
  done
  echo "${castoff_asked:-${castoff_python:-$1}}"
}
castoff_stack() { # PID RANK: write its stacks to a file
  castoff_file=$CASTOFF_STACK_DIR/rank-$(printf %05d "$2").txt
  castoff_why="the program has no faulthandler.register(signal.SIGQUIT)"
  if castoff_answers_quit "$1"; then
    kill -s QUIT "$1"
    castoff_tries=0
    until [ -n "$(castoff_place "$castoff_file" 2>/dev/null)" ] || [ "$castoff_tries" -ge 20 ]; do
      castoff_tries=$((castoff_tries + 1))
      sleep 0.1
    done
    sleep 0.1 # it may be writing a line
    castoff_why="the program was asked for one (SIGQUIT) and wrote none"
  fi
  [ -s "$castoff_file" ] || ! command -v py-spy >/dev/null || timeout 10 py-spy dump --pid "$1" >"$castoff_file" 2>&1
  [ -s "$castoff_file" ] || {
    echo "No stack: py-spy is not on this job's PATH, and $castoff_why."
    castoff_waits=$(castoff_waits_for "$1")
    [ -z "$castoff_waits" ] || echo "Its main thread $castoff_waits."
  } >"$castoff_file"
}
castoff_waits_for() { # PID: prints what its main thread waits for in the kernel, if known
  castoff_in=$(cat "/proc/$1/wchan" 2>/dev/null)
  case $castoff_in in
    futex_*) echo "waits for another thread ($castoff_in)" ;;
    *poll* | ep_* | do_select | inet_csk_accept | *wait_for_connect*) echo "waits for other processes ($castoff_in)" ;;
    sk_wait_data | tcp_* | unix_stream_* | unix_wait_* | wait_woken) echo "waits for other processes ($castoff_in)" ;;
    pipe_* | anon_pipe_* | fifo_*) echo "waits for the other end of a pipe ($castoff_in)" ;;
    do_wait | wait4 | kernel_wait*) echo "waits for a child process ($castoff_in)" ;;
    *nanosleep*) echo "waits for a time to pass ($castoff_in)" ;;
    nfs* | rpc_* | ll_* | cl_* | osc_* | ldlm_* | ptlrpc_* | cxiWaitEventWait | fuse_* | request_wait_answer | \
      locks_lock_* | fcntl_* | flock_* | io_schedule* | folio_* | wait_on_page_* | ext4_* | xfs_* | jbd2_* | btrfs_*)
      echo "waits for the file system ($castoff_in)"
      ;;
  esac
}
castoff_place() { # FILE: prints the main thread's place, as function (file:line)
  awk '
    /^Current thread/ { main = 1; next }
    /^Thread .*"MainThread"/ { spy = 1; next }
    /^Thread|^$/ { main = spy = 0; next }
    main && !place && match($0, /File "[^"]*", line [0-9]+ in .*/) {
      split(substr($0, RSTART), parts, "\""); file = parts[2]; sub(/.*\//, "", file)
      rest = parts[3]; sub(/^, line /, "", rest); line = rest; sub(/ .*/, "", line); sub(/^[0-9]+ in /, "", rest)
      place = rest " (" file ":" line ")"
    }
    spy && !place && NF { sub(/^ */, ""); place = $0 }
    END { print place }
  ' "$1"
}
castoff_ranks | {
  while read -r castoff_pid castoff_rank; do
#if many_ranks !container
    castoff_numbers="$castoff_numbers $castoff_rank"
#endif
    (
      castoff_pid=$(castoff_program "$castoff_pid")
      castoff_letter=$(castoff_state "$castoff_pid")
      case $castoff_letter in
        [TtZ]) castoff_where="process $castoff_pid" ;;
        *)
          castoff_stack "$castoff_pid" "$castoff_rank"
          castoff_where=$(castoff_place "$castoff_file")
          ;;
      esac
      printf '%s\t%s\t%s\t%s\n' "$castoff_rank" "${SLURMD_NODENAME:-$(hostname)}" "${castoff_letter:-?}" \
        "${castoff_where:-$(castoff_waits_for "$castoff_pid")}"
    ) &
  done
  wait
#if many_ranks !container
  for castoff_rank in $castoff_numbers; do
    echo "--- rank $castoff_rank ---"
    castoff_file=$CASTOFF_STACK_DIR/rank-$(printf %05d "$castoff_rank").txt
    cat "$castoff_file" 2>/dev/null && rm -f -- "$castoff_file"
  done >>"$castoff_all_stacks/node-$(printf %05d "$castoff_process").txt"
  rmdir -- "$CASTOFF_STACK_DIR" 2>/dev/null # the ranks are ended by KILL
#endif
}
#if hosts
echo "answered $castoff_name"
#endif
CASTOFF_STACKS
}
