# --- Stage: copies to each node's local disk, before the ranks start ------------------------------
castoff_staged=
#if teardown
castoff_first_host=$(hostname)
#endif
castoff_items=
castoff_staged_path= # folders to prepend to PATH, each followed by :
castoff_stage_in() { # FOLDER
  local castoff_storage=$1
  if [[ ! -w $castoff_storage && -w $castoff_storage/$(id -un) ]]; then castoff_storage+=/$(id -un); fi
  export CASTOFF_STAGE_DIR=$castoff_storage/castoff-$castoff_job.$CASTOFF_ARRAY_INDEX.$CASTOFF_ATTEMPT
  castoff_folders+=("$CASTOFF_STAGE_DIR")
}
castoff_item() { # FROM TO unpack|copy activate|leave [SHA-256]
  castoff_items+="\"\$1\" $(castoff_quoted "$@")"$'\n'
  if [[ $4 == activate ]]; then castoff_staged_path+=$CASTOFF_STAGE_DIR/$2/bin:; fi
}
castoff_stage() { # LAUNCHER (one process per node)...
  castoff_command=("$@") castoff_flags=()
#ifdef castoff_scheduler_find_launcher
  castoff_scheduler_find_launcher
#endif
  castoff_write_stage
#ifdef castoff_launcher_name_hosts
  castoff_launcher_name_hosts stage-hosts 1 "$castoff_nodes"
#endif
  castoff_stage=("${castoff_command[@]}" ${castoff_flags[@]+"${castoff_flags[@]}"}
    "${castoff_run_checked[@]}" "$CASTOFF_ATTEMPT_DIR/stage.sh")
  : >"$CASTOFF_LOG_DIR/stage.log"
  castoff_run "${castoff_run_checked[@]}" "$CASTOFF_ATTEMPT_DIR/stage.sh" measure >"$CASTOFF_ATTEMPT_DIR/stage-sizes"
  if ((castoff_code == 0)); then
    awk '{ bytes += $2 } END { printf "castoff: staging %.1f MiB to each node\n", bytes / 1048576 }' \
      "$CASTOFF_ATTEMPT_DIR/stage-sizes"
    castoff_staged=1
    castoff_run "${castoff_stage[@]}" copy >"$CASTOFF_LOG_DIR/stage.log" 2>&1
  fi
  castoff_launcher=
  if [[ -n $castoff_terminated ]]; then castoff_leave_stage; fi
  castoff_check_stage
#if many_nodes
  # Of many nodes, show the fastest and the slowest.
  sed -n 's/.*castoff: staged in \([0-9]* s on .*\)/\1/p' "$CASTOFF_LOG_DIR/stage.log" | sort -n |
    awk 'NR == 1 { fastest = $0 } END { print "castoff: staged on " NR " nodes, from " fastest " to " $0 }'
#else
  grep 'castoff: staged in' "$CASTOFF_LOG_DIR/stage.log"
#endif
}
castoff_run() { # COMMAND...: run it in the background, so that signals are handled; sets castoff_code
  "$@" "$CASTOFF_STAGE_DIR" "$castoff_submit_dir" &
  castoff_launcher=$!
  castoff_wait
}
castoff_leave_stage() { # called if the job is ended during staging
  local castoff_count
  castoff_count=$(grep 'castoff: staged in' "$CASTOFF_LOG_DIR/stage.log" | grep -vc " on $(hostname)\$" || true)
  if ((castoff_count > 0)); then
    echo "castoff: $CASTOFF_STAGE_DIR may still be there on nodes that had it all already: $((castoff_count))" >&2
  fi
  castoff_ending=cancelled
  if [[ -n ${CASTOFF_DEADLINE:-} ]] && (($(date +%s) + 15 > CASTOFF_DEADLINE)); then castoff_ending=walltime; fi
  exit 143
}
castoff_check_stage() { # whether all nodes have the copies
  local castoff_count castoff_plural=s
  castoff_count=$(grep -c 'castoff: staged in' "$CASTOFF_LOG_DIR/stage.log" || true)
  if [[ -e $CASTOFF_FAILURE_FILE ]]; then # use its code, not the launcher's
    castoff_code=$(sed -n 's/.*"code": \([0-9]*\).*/\1/p' "$CASTOFF_FAILURE_FILE")
  fi
  if ((castoff_code != 0 || castoff_count != castoff_nodes)); then
    if ((castoff_nodes == 1)); then castoff_plural=; fi
    { grep -v 'castoff: staged in' "$CASTOFF_LOG_DIR/stage.log" || true; } | tail -n 40 >&2
    echo "castoff: staging failed: $((castoff_count)) of $castoff_nodes node$castoff_plural did it," \
      "and no rank was started; see $CASTOFF_LOG_DIR/stage.log" >&2
    exit $((castoff_code ? castoff_code : 1))
  fi
}
castoff_unstage() { # CODE of the launcher; limited in time, since the scheduler may be about to kill this job
  if [[ -z $castoff_staged ]]; then return 0; fi
  castoff_staged=
  # A signal now ends only the cleaning; the ranks have already ended.
  local castoff_code castoff_launcher=none castoff_terminated=$castoff_terminated
  local castoff_limit=60 castoff_cleaner=("${castoff_stage[@]}")
  if [[ -n $castoff_terminated ]]; then castoff_limit=4; fi
#if launcher_enters
  # Slurm starts no more steps in a job that is being ended.
  if [[ -n $castoff_terminated ]]; then castoff_cleaner=("${castoff_run_checked[@]}" "$CASTOFF_ATTEMPT_DIR/stage.sh"); fi
#elif !here !driver !restart
  # The last rank of each node has cleaned it. Slurm starts no more steps in a job that is being ended.
  if [[ -n $castoff_terminated ]] || (($1 == 0)); then
    castoff_cleaner=("${castoff_run_checked[@]}" "$CASTOFF_ATTEMPT_DIR/stage.sh")
  fi
#endif
  castoff_run timeout --kill-after=2 "$castoff_limit" "${castoff_cleaner[@]}" clean
  if ((castoff_code != 0)); then
    echo "castoff: $CASTOFF_STAGE_DIR may still be there on some node:" \
      "removing it failed or took over $castoff_limit s" >&2
  fi
}
castoff_write_stage() { # write stage.sh, which runs on each node
  castoff_write stage.sh castoff_items <<'CASTOFF_STAGE'
# VERB STAGE_DIR SUBMIT_DIR: measure runs once; then copy and clean run on each node.
castoff_verb=$1
castoff_stage_dir=$2
castoff_submit_dir=$3
castoff_attempt=${0%/*}
castoff_host=$(hostname)
castoff_complain() { printf 'castoff: stage: on %s: %s\n' "$castoff_host" "$1" >&2; } # echo might interpret backslashes
castoff_fail() { # MESSAGE [CODE]
  castoff_complain "$1"
  # noclobber: only the first failure is recorded
  (set -C && printf \
    '{"rank": null, "program": "%s", "host": "%s", "code": %s, "signal": null, "log": "%s", "time": %s}\n' \
    staging "$castoff_host" "${2:-1}" stage.log "$(date +%s)" >"$castoff_attempt/failure.json") 2>/dev/null
  castoff_clean
  exit "${2:-1}"
}
castoff_clean() { # remove only what this attempt has made
  rmdir "$castoff_stage_dir" 2>/dev/null && return
  [ "$(cat "$castoff_stage_dir/.castoff" 2>/dev/null)" = "$castoff_attempt" ] || return 0
  # Two ranks may both believe they are the last; a copied folder may be read-only.
  castoff_empty 2>/dev/null || { chmod -R u+rwx "$castoff_stage_dir" && castoff_empty; } 2>/dev/null
  rm -rf "$castoff_stage_dir" || ! castoff_complain "cannot remove all of $castoff_stage_dir"
}
castoff_empty() { # .castoff is removed last: if this is interrupted, the next cleaning still recognises the folder
  find "$castoff_stage_dir" -mindepth 1 -maxdepth 1 ! -name .castoff -exec rm -rf {} +
}
castoff_each_item() { # FUNCTION, called with FROM TO unpack|copy activate|leave [SHA-256]
  eval "$castoff_items"
}
castoff_mib() { awk -v "kib=$1" 'BEGIN { printf "%.1f MiB\n", kib / 1024 }'; }
castoff_count() { # PATH: prints the number of its files and their bytes
  castoff_sizes=$(find -H "$1" -type f -printf '%s\n') || return 1
  echo "$castoff_sizes" | awk 'NF { files++; bytes += $1 } END { printf "%d %.0f\n", files, bytes }'
}
castoff_measure() {
  [ -f "$1" ] || [ -d "$1" ] || castoff_fail "there is no file or folder $1"
  [ -f "$1" ] || [ -z "${5:-}" ] || castoff_fail "$1 is a folder, and a sha256 is a file's"
  castoff_count "$1" || castoff_fail "cannot read all of $1"
}

castoff_child=
castoff_give_up() { # called if this job ends or another node has failed
  trap '' TERM INT HUP USR1 USR2
  [ -z "$castoff_child" ] || kill "$castoff_child" 2>/dev/null
  wait
  castoff_clean
  exit 143
}
castoff_run() { # COMMAND...
  "$@" &
  castoff_child=$!
  castoff_looks=0
  while kill -s 0 "$castoff_child" 2>/dev/null; do
    [ ! -e "$castoff_attempt/failure.json" ] || castoff_give_up
    castoff_looks=$((castoff_looks + 1))
    if [ "$castoff_looks" -lt 20 ]; then sleep 0.02; else sleep 0.5; fi
  done
  wait "$castoff_child"
}
castoff_sum() { exec sha256sum <"$1" >"$castoff_stage_dir/.castoff-sum"; }
castoff_check_sum() { # PATH [SHA-256]
  [ -n "${2:-}" ] || return 0
  castoff_run castoff_sum "$1" || castoff_fail "cannot read $1" $?
  read -r castoff_found _ <"$castoff_stage_dir/.castoff-sum"
  [ "$castoff_found" = "$2" ] || castoff_fail "$1 has the SHA-256 sum $castoff_found, and not $2"
}
castoff_compare() { # FROM TARGET: check that files, bytes and link targets are the same
  castoff_expected=$(sed -n "${castoff_item}p" "$castoff_attempt/stage-sizes")
  castoff_found=$(castoff_count "$2") || castoff_fail "cannot read all of $2"
  [ "$castoff_found" = "$castoff_expected" ] ||
    castoff_fail "the copy of $1 has ${castoff_found% *} files of ${castoff_found#* } bytes,\
 the original ${castoff_expected% *} of ${castoff_expected#* }"
  castoff_lost=$(find "$2" -xtype l -printf '%P\n')
  while IFS= read -r castoff_link; do
    [ -z "$castoff_link" ] || [ ! -e "$1/$castoff_link" ] ||
      castoff_fail "$1/$castoff_link is a link out of the folder, so the copy lacks it"
  done <<LOST
$castoff_lost
LOST
}
castoff_copy() {
  castoff_item=$((castoff_item + 1))
  castoff_target=$castoff_stage_dir/$2
  case $2 in # never create the stage directory itself, which may have been cleaned
    */*) (cd "$castoff_stage_dir" && mkdir -p "./${2%/*}") || castoff_fail "cannot make ${castoff_target%/*}" ;;
  esac
  if [ -d "$1" ]; then
    mkdir "$castoff_target" || castoff_fail "cannot make $castoff_target"
    castoff_run cp -a "$1/." "$castoff_target" || castoff_fail "cannot copy $1" $?
    castoff_compare "$1" "$castoff_target"
  elif [ "$3" = unpack ]; then
    castoff_check_sum "$1" "${5:-}"
    mkdir "$castoff_target" || castoff_fail "cannot make $castoff_target"
    case $1 in
      *.zip) castoff_run unzip -q "$1" -d "$castoff_target" ;;
      *) castoff_run tar --no-unquote -x -f "$1" -C "$castoff_target" ;;
    esac || castoff_fail "cannot unpack $1" $?
  else
    castoff_run cp -p "$1" "$castoff_target" || castoff_fail "cannot copy $1" $?
    castoff_compare "$1" "$castoff_target"
    castoff_check_sum "$castoff_target" "${5:-}"
  fi
  if [ "$4" = activate ]; then
    [ -d "$castoff_target/bin" ] || castoff_fail "$1 is to be activated, but has no bin"
    [ ! -x "$castoff_target/bin/conda-unpack" ] || castoff_run env PATH="$castoff_target/bin:$PATH" conda-unpack ||
      castoff_fail "conda-unpack cannot make $1 fit its place" $?
  fi
}
castoff_copy_all() {
  castoff_began=$(date +%s)
  castoff_storage=${castoff_stage_dir%/*}
  [ -d "$castoff_storage" ] && [ -w "$castoff_storage" ] ||
    castoff_fail "there is no folder $castoff_storage that can be written"
  castoff_need=$(awk '{ bytes += $2 } END { printf "%.0f\n", bytes / 1024 }' "$castoff_attempt/stage-sizes")
  castoff_free=$(df -k --output=avail "$castoff_storage" | tail -n 1)
  [ "$castoff_free" -ge "$castoff_need" ] ||
    castoff_fail "$castoff_storage has $(castoff_mib "$castoff_free") free,\
 and stage needs at least $(castoff_mib "$castoff_need")"
  (umask 077 && mkdir "$castoff_stage_dir" && printf '%s\n' "$castoff_attempt" >"$castoff_stage_dir/.castoff") ||
    castoff_fail "cannot make $castoff_stage_dir anew; is $castoff_storage really a folder of this node alone?"
  castoff_item=0
  castoff_each_item castoff_copy
  echo "castoff: staged in $(($(date +%s) - castoff_began)) s on $castoff_host"
}

if [ "$castoff_verb" = clean ]; then
  castoff_clean
  exit
fi
cd "$castoff_submit_dir" || castoff_fail "cannot enter $castoff_submit_dir"
if [ "$castoff_verb" = measure ]; then
  castoff_each_item castoff_measure
else
  trap castoff_give_up TERM INT HUP USR1 USR2
  castoff_copy_all
fi
CASTOFF_STAGE
}
