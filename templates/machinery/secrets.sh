castoff_hidden= # what castoff submit has written of env_from's variables
castoff_read_secrets() { # as this job begins, from what was looked at: nothing reads that file later
  if [[ ! -e $CASTOFF_RUN_DIR/secrets.sh ]]; then return 0; fi
  exec 9<"$CASTOFF_RUN_DIR/secrets.sh"
  if [[ ! -O /dev/fd/9 ]] || (("8#$(stat --dereference --format %a /dev/fd/9)" & 8#22)); then
    echo "castoff: $CASTOFF_RUN_DIR/secrets.sh may be another user's, so it is not read" >&2
    exit 1
  fi
  castoff_hidden=$(cat <&9)
  exec 9<&-
}
castoff_need() { # NAME of a variable that env_from asks for
  eval "$castoff_hidden"
  if [[ -z ${!1+set} ]]; then
    echo "castoff: env_from names $1, but it is not set; ${castoff_to_give/NAME/$1}" >&2
    exit 1
  fi
  export "${1?}"
}
castoff_remove_secrets() { # once nothing of the run needs them; castoff resubmit writes them anew
  local castoff_member
  # What was told to end, or wants to go on, a scheduler may start again; castoff status knows more.
  if [[ ! -e $CASTOFF_RUN_DIR/stop && (-n $castoff_terminated || ! $castoff_ending =~ ^(done|failed)$) ]]; then
    return 0
  fi
  for ((castoff_member = 0; castoff_member < CASTOFF_ARRAY_COUNT; castoff_member++)); do
    if ((castoff_member != CASTOFF_ARRAY_INDEX)) && ! castoff_is_over "$castoff_member"; then return 0; fi
  done
  rm -f -- "$CASTOFF_RUN_DIR/secrets.sh"
}
castoff_is_over() { # MEMBER, since it was submitted last
  local castoff_attempt=0 castoff_file
  while [[ -e $CASTOFF_RUN_DIR/attempts/$1.$((castoff_attempt + 1)) ]]; do
    castoff_attempt=$((castoff_attempt + 1))
  done
  castoff_file=$CASTOFF_RUN_DIR/attempts/$1.$castoff_attempt/ending.json
  [[ $castoff_file -nt $CASTOFF_RUN_DIR/secrets.sh ]] && ! grep -q '"resume"' "$castoff_file"
}
castoff_at_begun+=(castoff_read_secrets)
castoff_at_exit+=(castoff_remove_secrets)
readonly -f castoff_read_secrets castoff_need castoff_remove_secrets castoff_is_over
