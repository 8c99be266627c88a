# Prints where the ranks on this host are in their programs, without disturbing them.
# bash -c THIS castoff ATTEMPT_DIR NODE_RANK MARK THREADS ALSO_PY_SPY [RANK...]; THREADS: main or all; no RANK: all ranks
# A line of output is MARK, its kind and its fields, between spaces; other lines are not of this script.
set -u
castoff_attempt=$1 castoff_node=$2 castoff_mark=$3 castoff_threads=$4 castoff_also=$5
shift 5
castoff_chosen=" $* "
castoff_say() { printf '%s %s\n' "$castoff_mark" "$*"; }
castoff_lines() { # RANK PID KIND: print each line of the input with these before it, at once, since ranks share a pipe
  LC_ALL=C awk -v "before=$castoff_mark $3 $1 $2 " '{ print before substr($0, 1, 2000); fflush() }'
}
castoff_wanted() { # PID: only the main thread's part of a stack, unless all are wanted, of which torch may have dozens
  LC_ALL=C awk -v "all=$castoff_threads" -v "pid=$1" '
    /^Current thread / { left_out = 0 }
    /^Thread / { left_out = all != "all" && $2 != pid && !/: "MainThread"$/ }
    !left_out
  '
}
castoff_facts() { # all processes at once, since a command for each would take seconds on a large node
  cat /proc/[0-9]*/stat 2>/dev/null | LC_ALL=C sed -n 's/^\([0-9]*\) (\(.*\)) \(.\) \([0-9]*\) .*/stat \1 \4 \3 \2/p'
  # A process that hangs in the kernel may block who reads its environment.
  timeout -k 1 5 grep -szHE --line-buffered '^(CASTOFF_ATTEMPT_DIR|RANK|WORLD_SIZE|NODE_RANK|TORCHELASTIC_RUN_ID)=' \
    /proc/[0-9]*/environ | LC_ALL=C tr '\000' '\n' | LC_ALL=C sed -n 's|^/proc/\([0-9]*\)/environ:|env \1 |p'
  find /proc/[0-9]*/exe -printf '%p %l\n' 2>/dev/null | LC_ALL=C sed -n 's|^/proc/\([0-9]*\)/exe |exe \1 |p'
  # The files that programs keep for their stacks; bit 2 of the lowest four is signal 3, QUIT.
  find /proc/[0-9]*/fd -lname '*stacks*/rank-[0-9]*.txt' 2>/dev/null |
    LC_ALL=C sed -n 's|^/proc/\([0-9]*\)/fd/|file \1 |p'
  grep -sHE '^SigCgt:.*[4567cdef]$' /proc/[0-9]*/status | LC_ALL=C sed -n 's|^/proc/\([0-9]*\)/.*|catches \1|p'
  timeout -k 1 5 grep -slE 'multiprocessing.(resource_tracker|forkserver)|compile_worker' /proc/[0-9]*/cmdline |
    LC_ALL=C sed -n 's|^/proc/\([0-9]*\)/.*|helps \1|p'
  grep -sH '' /proc/[0-9]*/wchan | LC_ALL=C sed -n 's|^/proc/\([0-9]*\)/wchan:|wchan \1 |p'
}
castoff_choose() { # print for each rank: RANK WORLD_SIZE PID STATE WCHAN FILE_NUMBER IS_PYTHON NAME
  LC_ALL=C awk -v "attempt=$castoff_attempt" -v "chosen=$castoff_chosen" -v "node=$castoff_node" '
    $1 == "stat" { parent[$2] = $3; state[$2] = $4; name[$2] = $5; below[$3] = below[$3] " " $2
      if ($5 ~ /^castoff:[0-9]+$/) copy[$2] = substr($5, 9) }
    $1 == "env" { text = $0; sub(/^env [0-9]+ /, "", text)
      key = value = text; sub(/=.*/, "", key); sub(/^[^=]*=/, "", value)
      if (key == "CASTOFF_ATTEMPT_DIR") { if (value == attempt) ours[$2] = 1 }
      else if (key == "RANK") { if (value ~ /^[0-9]+$/) rank[$2] = value }
      else if (key == "WORLD_SIZE") size[$2] = value
      else if (key == "NODE_RANK") { if (value != node) elsewhere[$2] = 1 } # hosts that share /proc, as containers may
      else elastic[$2] = 1 }
    $1 == "exe" { file = $0; sub(/ \(deleted\)$/, "", file); sub(/.*\//, "", file)
      if (file ~ /^(python|pypy)/) python[$2] = 1 }
    $1 == "file" { keeps[$2] = $3 }
    $1 == "catches" { catches[$2] = 1 }
    $1 == "wchan" { waits[$2] = $3 }
    $1 == "helps" { helps[$2] = 1 }
    END {
      for (pid in helps) delete python[pid]
      for (pid in elsewhere) delete ours[pid]
      for (pid in ours) if (!(pid in state)) delete ours[pid] # it began while these facts were read
      for (pid in rank) if (pid in ours && starts(pid)) begins[pid] = 1
      for (pid in begins) {
        any = 1
        if (chosen == "  " || index(chosen, " " rank[pid] " ")) choose(pid)
      }
      # A program that starts its own workers sets no RANK before they begin.
      if (!any && chosen == "  ") for (pid in python) if (pid in ours) show("-", pid, pid)
    }
    function word(text) { return text == "" || text == "0" ? "-" : text }
    function writes(pid) { return pid in keeps && pid in catches }
    function show(number, top, pid) {
      print number, size[top] + 0, pid, state[pid], word(waits[pid]), (writes(pid) ? keeps[pid] : "-"), \
        (pid in python) + 0, word(name[pid])
    }
    function starts(pid, above) { # whether a rank begins with this process
      above = parent[pid]
      return !(above in rank) || !(above in ours) || rank[above] != rank[pid] || ((pid in elastic) && !(above in elastic))
    }
    function choose(top, all, count, at, pid, found, number) { # show the program of the rank that begins with this process
      launches = 0
      count = family(top, all)
      if (launches) return # its children are ranks
      for (at = 1; at <= count; at++) if (writes(all[at])) { show(rank[top], top, all[at]); return }
      for (at = count; at >= 1; at--) if (all[at] in python) pid = all[at]
      if (pid == "") pid = top
      # A Python that waits for its only child, as conda run does, is a wrapper; several children are its workers.
      while (waits[pid] ~ /^(do_wait|wait4|kernel_wait)/ && (number = directly_below(pid, all, count, found)) == 1)
        pid = found[1]
      show(rank[top], top, pid)
      if (waits[pid] ~ /^(do_wait|wait4|kernel_wait)/) for (at = 1; at <= number; at++) show("-", top, found[at])
    }
    function family(top, all, queue, count, at, number, pid, seen, children, child) { # it and its descendants, in order
      queue[count = 1] = top
      for (at = 1; at <= count; at++) {
        pid = queue[at]
        if (seen[pid]++) continue
        if (pid != top && (pid in begins)) { launches = 1; continue }
        if (!(pid in copy)) all[++number] = pid
        for (child = split(copy[pid] below[pid], children, " "); child >= 1; child--) queue[++count] = children[child]
      }
      return number
    }
    function directly_below(top, all, count, found, at, above, number) { # the Pythons with no other in between
      for (at = 1; at <= count; at++) if (all[at] in python && all[at] != top) {
        for (above = parent[all[at]]; above > 1 && above != top && !(above in python); ) above = parent[above]
        if (above == top) found[++number] = all[at]
      }
      return number + 0
    }
  '
}
castoff_by_handler() { # RANK PID FILE_NUMBER: have it write its stacks, which its signal handler does
  local castoff_file=/proc/$2/fd/$3 castoff_size castoff_now castoff_last='' castoff_try
  castoff_size=$(stat -Lc %s -- "$castoff_file") || return 1
  kill -s QUIT "$2" || return 1
  for ((castoff_try = 0; castoff_try < 30; castoff_try++)); do
    sleep 0.1
    castoff_now=$(stat -Lc %s -- "$castoff_file") || return 1
    if ((castoff_now > castoff_size)) && [[ $castoff_now == "$castoff_last" ]]; then
      tail -c "+$((castoff_size + 1))" -- "$castoff_file" | castoff_wanted - | castoff_lines "$1" "$2" handler
      return 0
    fi
    castoff_last=$castoff_now
  done
  castoff_say note "$1" "$2" "it was asked for its stack (SIGQUIT) and wrote none within 3 s"
  return 1
} 2>/dev/null
castoff_spies() { # PID: print the py-spy programs to try: castoff's own, those of the rank's PATH, of this host's
  local castoff_folders castoff_path
  [[ ! -x $castoff_also ]] || echo "$castoff_also"
  castoff_path=$(timeout 2 tr '\000' '\n' <"/proc/$1/environ" | sed -n 's/^PATH=//p')
  IFS=: read -r -a castoff_folders <<<"$castoff_path:$PATH"
  for castoff_path in ${castoff_folders[@]+"${castoff_folders[@]}"}; do
    [[ $castoff_path != /* || ! -x $castoff_path/py-spy ]] || echo "$castoff_path/py-spy"
  done
} 2>/dev/null
castoff_by_py_spy() { # RANK PID: read its memory; --nonblocking, since a pause would interrupt its system calls
  local castoff_spy castoff_text='' castoff_try
  castoff_spy=$(castoff_spies "$2" | head -n 1)
  if [[ -z $castoff_spy ]]; then
    castoff_say missing "$1" "$2" py-spy
    return 1
  fi
  for castoff_try in 1 2 3; do # it may meet a stack that is just changing
    if castoff_text=$(timeout -k 1 10 "$castoff_spy" dump --nonblocking --full-filenames --pid "$2" 2>&1); then
      castoff_wanted "$2" <<<"$castoff_text" | castoff_lines "$1" "$2" py-spy
      return 0
    fi
    [[ $castoff_text != *ermission* && $castoff_text != *ermitted* ]] || break
  done
  castoff_lines "$1" "$2" refused <<<"$castoff_text"
  return 1
}
castoff_one() { # RANK SIZE PID STATE WCHAN FILE_NUMBER IS_PYTHON NAME
  castoff_say rank "$@"
  [[ $4 != Z ]] || return 0
  # A signal would end a call of sleep or poll in C early, so it is sent only without py-spy, and only to a program that
  # has opened a file for its stacks and handles QUIT.
  if [[ $7 == 1 ]] && castoff_by_py_spy "$1" "$3"; then return 0; fi
  if [[ $6 != - && $4 != [Tt] ]] && castoff_by_handler "$1" "$3" "$6"; then return 0; fi
  [[ $7 == 0 ]] || castoff_lines "$1" "$3" kernel 2>/dev/null <"/proc/$3/stack"
}
castoff_say host "${SLURMD_NODENAME:-$(hostname)}"
castoff_say ptrace "$(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null || echo -)"
castoff_facts | castoff_choose | {
  while read -r -a castoff_fields; do
    castoff_one "${castoff_fields[@]}" &
  done
  wait
}
castoff_say over
