# --- Progress: a run without progress is not restarted without end --------------------------------
#if guessed
castoff_best='' castoff_stale=0 castoff_seen=''
#else
castoff_best='' castoff_stale=0
#endif
castoff_judge_progress() { # ATTEMPT that is over: sets castoff_stale, the consecutive attempts without progress
  local castoff_attempts=$CASTOFF_RUN_DIR/attempts/$CASTOFF_ARRAY_INDEX castoff_got=''
#if reported_progress
  local castoff_kind castoff_number castoff_value castoff_last
#endif
  castoff_best='' castoff_stale=0
#if reported_progress
  for castoff_kind in castoff_step_of castoff_number_of; do
    castoff_last=
    for ((castoff_number = 0; castoff_number <= $1; castoff_number++)); do
      castoff_value=$("$castoff_kind" "$castoff_attempts.$castoff_number")
      if castoff_greater "$castoff_value" "$castoff_last"; then
        castoff_last=$castoff_value
        if ((castoff_number == $1)); then castoff_got=1; fi
      fi
    done
    castoff_best=${castoff_last:-$castoff_best}
  done
#if guessed
  castoff_seen=
  if [[ -z $castoff_got$castoff_best ]]; then
    castoff_seen=$(castoff_new_checkpoint "$castoff_attempts.$1")
    if [[ $castoff_seen == "new checkpoint: "* ]]; then castoff_got=1; fi
  fi
#endif
#else
  if [[ $castoff_progress == none ]]; then return 0; fi
  castoff_got=$(
    cd -- "$(cat "$castoff_attempts.$1/folder")" &&
      find -H "$castoff_progress" -newer "$castoff_attempts.$1/start.json" -print -quit
  ) 2>/dev/null || true
#endif
  if [[ -n $castoff_got ]]; then return 0; fi
  castoff_stale=$(cat "$castoff_attempts.$(($1 - 1))/stale" 2>/dev/null || echo 0)
  castoff_stale=$((castoff_stale + 1))
  echo "$castoff_stale" >"$castoff_attempts.$1/stale" || true # also read by the next job of this run
}
#if expiry | rerun | obeyed
castoff_lacks_progress() { # ATTEMPT: whether no attempt may follow it, with the reason in castoff_why
  castoff_judge_progress "$1"
  if ((castoff_stale < 2)); then return 1; fi
  castoff_why="no progress${castoff_best:+ beyond $castoff_best} in two attempts in a row"
#if guessed
  if [[ -z $castoff_best ]]; then castoff_why+=" (none was reported, and $castoff_seen: see requeue.progress)"; fi
#endif
}
#endif
#if guessed
castoff_new_checkpoint() { # FOLDER of an attempt: prints whether it has left a checkpoint, in words
  local castoff_until
  castoff_until=$(stat --format %Y -- "$1/ending.json" 2>/dev/null || date +%s)
  castoff_checkpoints "$(cat "$1/folder")" -newer "$1/start.json" ! -newermt "@$((castoff_until + 10))" |
    LC_ALL=C castoff_others=$1/others awk '
      BEGIN { while ((getline line <ENVIRON["castoff_others"]) > 0) others[line] }
      { name = $0; gsub(/[0-9]+/, "#", name) }
      name in others { other = $0; next }
      { own = 1; print "new checkpoint: " $0; exit }
      END {
        if (own) exit
        print other == "" ? "no new checkpoint was found" : \
          "another job writes " other ", which also changed while this run waited"
      }' || true
}
castoff_note_others() { # files that change between two attempts, and similar names, are another job's
  local castoff_before=${CASTOFF_ATTEMPT_DIR%.*}.$((CASTOFF_ATTEMPT - 1)) castoff_start=$CASTOFF_ATTEMPT_DIR/start.json
  local castoff_since
  castoff_since=$(stat --format %Y -- "$castoff_before/ending.json" 2>/dev/null) || return 0
  case $(cat "$castoff_before/fence" 2>/dev/null || true) in
    gone) castoff_since=$((castoff_since + 2)) ;; # clocks
    *) castoff_since=$((castoff_since + 10)) ;;   # leftovers of an attempt may run this long (fence.sh)
  esac
  if (($(stat --format %Y -- "$castoff_start") <= castoff_since)); then return 0; fi
  castoff_checkpoints "$PWD" -newermt "@$castoff_since" ! -newer "$castoff_start" |
    LC_ALL=C sed 's/[0-9][0-9]*/#/g' | sort -u >"$CASTOFF_ATTEMPT_DIR/others" || true
}
castoff_checkpoints() { # FOLDER of the ranks, TEST...: prints checkpoint-like files in it and in the run directory
  local castoff_folder castoff_root=''
  for castoff_folder in "$1" "$CASTOFF_RUN_DIR"; do
    cd -- "$castoff_folder" && timeout 10 find . -maxdepth 9 -regextype posix-extended \
      \( -name '.?*' -o -type d -regex '.*(-[0-9]{8}-[0-9]{6}-[0-9a-f]{4}|/castoff-[0-9][^/]*)' \) -prune -o \
      -type f "${@:2}" -iregex \
      '.*(\.(pt|pth|ckpt|safetensors|distcp|keras|h5|hdf5|npz|pkl|pickle|msgpack)|(checkpoint|ckpt)[^/]*(/.*)?)' \
      -printf "$castoff_root%P\n" || true
    castoff_root="(run directory)/"
  done 2>/dev/null
}
#endif
#if reported_progress
castoff_number_of() { # FOLDER of an attempt: prints the last number that its program reported
  sed -n '1s/^ *\(-\{0,1\}[0-9][0-9]*\(\.[0-9]*\)\{0,1\}\([eE][-+]\{0,1\}[0-9]*\)\{0,1\}\) *$/\1/p' "$1/progress" 2>/dev/null ||
    true
}
castoff_step_of() { # FOLDER of an attempt: prints the largest step in the last lines of its metrics
  { tail -c 1000000 "$1/metrics.jsonl" | LC_ALL=C awk '
    !/"parameters"/ && match($0, /[{,][ \t]*"step"[ \t]*:[ \t]*-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?[ \t]*[,}]/) {
      step = substr($0, RSTART, RLENGTH - 1); sub(/^[^:]*:[ \t]*/, "", step); sub(/[ \t]+$/, "", step)
      if (most == "" || step + 0 > most + 0) most = step
    }
    END { print most }'; } 2>/dev/null || true
}
castoff_greater() { # NUMBER OTHER: whether the first is greater; either may be missing
  if [[ -z $1 || -z $2 ]]; then [[ -n $1 ]] && return; fi
  awk -v "one=$1" -v "other=$2" 'BEGIN { exit !(one + 0 > other + 0) }'
}
#endif
#if rerun
castoff_check_rerun() { # end a job that the scheduler keeps restarting, as after preemptions, without progress
  local castoff_before castoff_last castoff_why
  if ((CASTOFF_ATTEMPT == 0)); then return 0; fi
  castoff_before=$CASTOFF_RUN_DIR/attempts/$CASTOFF_ARRAY_INDEX.$((CASTOFF_ATTEMPT - 1))
  castoff_last=$(sed -n 's/.*"ending": *"\([^"]*\)".*/\1/p' "$castoff_before/ending.json" 2>/dev/null || true)
  if [[ ! $castoff_last =~ ^(cancelled|)$ ]] ||
    ! grep -qsF "\"job\": \"$castoff_job\"" "$castoff_before/start.json"; then
    return 0
  fi
  if ! castoff_lacks_progress $((CASTOFF_ATTEMPT - 1)); then return 0; fi
  castoff_ending=node-failure
  if [[ -n $castoff_last ]]; then castoff_ending=preempted; fi # because its script was asked to end
  castoff_reason="not started again: $castoff_why"
  echo "castoff: $castoff_reason" >&2
  exit 1
}
#endif
