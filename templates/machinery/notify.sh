# --- Messages about the run -----------------------------------------------------------------------
castoff_notify_end() { # ENDING of this attempt, once it is recorded
  local castoff_folder=$CASTOFF_RUN_DIR/notify castoff_run=${CASTOFF_RUN_DIR##*/} castoff_name=$castoff_notify_name
  local castoff_total=$CASTOFF_ARRAY_COUNT castoff_event=end castoff_bad='' castoff_state=$1 castoff_title castoff_why
  # Whether a job resumes that its scheduler has ended, only the scheduler knows: castoff watch asks it.
  if [[ $1 == resume || (-n $castoff_terminated && ! $1 =~ ^(done|walltime)$) ]]; then return 0; fi
  if [[ $1 != 'done' ]]; then castoff_bad=1; fi
  castoff_title="$castoff_name: $1" castoff_why=$(castoff_notify_why)
  if ((castoff_total > 1)) || [[ -s $castoff_folder/group ]]; then castoff_notify_count "$1"; fi
  if [[ $castoff_event == end && $castoff_notify_on == *end* ]] ||
    [[ -n $castoff_bad && $castoff_notify_on == *fail* ]] ||
    [[ $castoff_event == end && $castoff_notify_on == *hang* && -e $CASTOFF_ATTEMPT_DIR/hang ]]; then
    castoff_notify "$castoff_event" "$castoff_title" "$castoff_why"
  fi
}
castoff_notify_count() { # ENDING of a member of an array, or of a run of a group: one message for all of them
  local castoff_over castoff_good
  (umask 077 && mkdir -p "$castoff_folder/over" && : >"$castoff_folder/over/$castoff_run.$CASTOFF_ARRAY_INDEX.$1")
  if ((castoff_total > 1)); then castoff_title="$castoff_name: member $CASTOFF_ARRAY_INDEX: $1"; fi
  if [[ -s $castoff_folder/group ]]; then
    read -r castoff_total castoff_name castoff_run <"$castoff_folder/group"
    castoff_title="$castoff_name: $castoff_title"
  fi
  read -r castoff_over castoff_good < <(find "$castoff_folder/over" -type f -printf '%f\n' | awk -F . '
    $NF == "done" { good++ } END { print NR, good + 0 }')
  if ((castoff_over < castoff_total)); then
    castoff_event=fail # others are not over: this is of interest only if it is the first that failed
    return
  fi
  castoff_title="$castoff_name: $castoff_good of $castoff_total done" castoff_bad='' castoff_state='done' castoff_why=''
  if ((castoff_good < castoff_total)); then
    castoff_bad=1 castoff_state=failed
    castoff_why=$(find "$castoff_folder/over" -type f ! -name '*.done' -printf '%f\n' | LC_ALL=C sort -V |
      awk -v most=5 -v "run=$castoff_run" '
        BEGIN { FS = "." }
        {
          member = $(NF - 1) # of an array
          ending = $NF
          sub(/\.[0-9]+\.[a-z-]+$/, "")
          if (run != $0) { # of a group: its name
            member = $0
            sub(/-[0-9]+-[0-9]+-[0-9a-f]+$/, "", member)
          }
          if (++count[ending] <= most) named[ending] = named[ending] (count[ending] > 1 ? ", " : "") member
        }
        END {
          for (ending in named)
            print ending ": " named[ending] (count[ending] > most ? " and " count[ending] - most " more" : "")
        }' | LC_ALL=C sort | sed ':all; N; $!b all; s/\n/; /g')
  fi
}
#if hang restart
castoff_notify_hang() { # the ranks are about to be started again
  local castoff_run=${CASTOFF_RUN_DIR##*/} castoff_name=$castoff_notify_name castoff_bad=1 castoff_state=running
  set +e # nothing here may end the job
  local castoff_title="$castoff_notify_name: hang, restarted" castoff_event=hang-$CASTOFF_ATTEMPT
  if ((CASTOFF_ARRAY_COUNT > 1)); then castoff_event=hang castoff_title+=" (member $CASTOFF_ARRAY_INDEX)"; fi
  if [[ $castoff_notify_on == *hang* ]]; then
    castoff_notify "$castoff_event" "$castoff_title" "$(castoff_notify_why)"
  fi
}
#endif
castoff_notify_why() { # prints the exception of the first failure, that failure, and what else is recorded
  local castoff_words='' castoff_said=''
  if [[ -s $CASTOFF_FAILURE_FILE ]]; then
    castoff_words=$(castoff_failure_words)
    if [[ ! -e $CASTOFF_ATTEMPT_DIR/hang ]]; then castoff_said=$(castoff_notify_said); fi
    castoff_words=${castoff_said:+$castoff_said; }$castoff_words
  fi
  if [[ $castoff_words != "$castoff_reason"* ]]; then castoff_words+=${castoff_words:+; }$castoff_reason; fi
  printf %s "$castoff_words"
}
castoff_notify_said() { # prints the line of the failed rank's log that names its exception, or reads like an error
  local castoff_log
  castoff_log=$(castoff_field log)
  if [[ $castoff_log == */* || ! -f $CASTOFF_LOG_DIR/$castoff_log ]]; then
    castoff_log=$(printf 'rank-%05d.log' "$(castoff_field rank)" 2>/dev/null)
  fi
  tail -c 65536 -- "$CASTOFF_LOG_DIR/$castoff_log" 2>/dev/null | LC_ALL=C awk '
    { sub(/\r$/, ""); sub(/^\[[0-9]+\] /, ""); sub(/^\[rank[0-9]+\]: /, "") }
    /^(  \+ Exception Group )?Traceback \(most recent call last\)/ { named = 1; next }
    named && /^[^ \t]/ { if (!/ChildFailedError/) said = $0; named = 0 }
    tolower($0) ~ /error|exception|fatal|failed|failure|fails|abort|not found|no such|denied|cannot/ { last = $0 }
    END { print said == "" ? last : said }'
}
castoff_notify() { # EVENT TITLE REASON: send it to all, each once; takes a few seconds at most
  local castoff_target castoff_pids=() castoff_since castoff_took castoff_site castoff_command
  declare -A castoff_values
  castoff_since=$(find "$CASTOFF_RUN_DIR/attempts" -maxdepth 2 -name start.json -printf '%T@\n' 2>/dev/null |
    sort -n | sed -n 1p)
  castoff_since=${castoff_since:-$(date +%s)} castoff_took=$(($(date +%s) - ${castoff_since%.*}))
  castoff_site=$(castoff_notify_text "$castoff_notify_site") castoff_command="castoff status $castoff_run"
  castoff_values=(
    [title]=$(castoff_notify_text "$2") [reason]=$(castoff_notify_text "$3") [site]=$castoff_site
    [name]=$(castoff_notify_text "$castoff_name") [run]=$(castoff_notify_text "$castoff_run") [state]=$castoff_state
    [event]=${1%%-*} [seconds]=$castoff_took [command]=$(castoff_notify_text "$castoff_command")
    [priority]=$((castoff_bad ? 4 : 3)) [tag]=$([[ -n $castoff_bad ]] && echo rotating_light || echo white_check_mark)
  )
  castoff_notify_lines "${castoff_values[reason]}" \
    "$castoff_site, after $(castoff_notify_brief "$castoff_took"): ${castoff_values[command]}"
  for castoff_target in $castoff_notify_to; do
    castoff_notify_once "$1" "$castoff_target" &
    castoff_pids+=("$!")
  done
  wait "${castoff_pids[@]}" 2>/dev/null || true
}
castoff_notify_lines() { # REASON WHERE, both as JSON: add the texts that services mark up in different ways
  castoff_values[text]=${1:+$1\\n}$2
  castoff_values[text_paragraphs]=${1:+$1\\n\\n}$2
  castoff_values[title_html]=$(castoff_notify_html "${castoff_values[title]}")
  castoff_values[text_html]=$(castoff_notify_html "${castoff_values[text]}")
}
castoff_notify_text() { # TEXT: prints it for a JSON string, in valid UTF-8, truncated to fit
  if command -v iconv >/dev/null; then
    castoff_json "$1" | iconv -c -f UTF-8 -t UTF-8 2>/dev/null
  else
    castoff_json "$1" | LC_ALL=C sed 's/[\o200-\o377]//g'
  fi
}
castoff_notify_html() {
  local castoff_text=$1 castoff_and='&amp;' castoff_less='&lt;' castoff_more='&gt;'
  castoff_text=${castoff_text//&/"$castoff_and"} castoff_text=${castoff_text//</"$castoff_less"}
  printf %s "${castoff_text//>/"$castoff_more"}"
}
castoff_notify_brief() { # SECONDS: prints 45s, 12m, 3h05m, 2d07h or 53d
  local castoff_days=$(($1 / 86400))
  if (($1 < 100)); then
    echo "$(($1 < 0 ? 0 : $1))s"
  elif (($1 < 3600)); then
    echo "$(($1 / 60))m"
  elif ((castoff_days == 0)); then
    printf '%dh%02dm' $(($1 / 3600)) $(($1 / 60 % 60))
  elif ((castoff_days < 10)); then
    printf '%dd%02dh' "$castoff_days" $(($1 / 3600 % 24))
  else
    echo "${castoff_days}d"
  fi
}
castoff_notify_once() { # EVENT NAME: whoever makes the record sends; castoff watch makes it, too
  local castoff_record=$CASTOFF_RUN_DIR/notify/$1=$2.json castoff_why castoff_by castoff_result=', "sent": true'
  trap - EXIT
  castoff_by="{\"by\": \"job\", \"host\": \"$(hostname)\""
  (
    umask 077
    mkdir -p "${castoff_record%/*}"
    set -C
    printf '%s, "time": %(%s)T}\n' "$castoff_by" -1 >"$castoff_record"
  ) 2>/dev/null || return 0
  castoff_why=$(castoff_notify_post "$2" 2>/dev/null)
  if [[ -n $castoff_why ]]; then castoff_result=", \"error\": \"$(castoff_notify_text "$castoff_why")\""; fi
  (umask 077 && printf '%s, "time": %(%s)T%s}\n' "$castoff_by" -1 "$castoff_result" >"$castoff_record.new" &&
    mv "$castoff_record.new" "$castoff_record")
}
castoff_notify_post() { # NAME: prints why it could not be sent; the URL never reaches a command line or a log
  local castoff_home=~ castoff_file castoff_url='' castoff_body='' castoff_answer castoff_code=0
  local castoff_curl=(env -u LD_LIBRARY_PATH -u LD_PRELOAD /usr/bin/curl) # not with the libraries of a module or conda
  if [[ ! -x /usr/bin/curl ]]; then castoff_curl=(curl); fi
  castoff_file=${XDG_CONFIG_HOME:-$castoff_home/.config}/castoff/notify/$1
  if [[ ! -f $castoff_file ]]; then
    echo "$(hostname) has no $castoff_file (castoff notify add $1)"
  elif [[ ! -O $castoff_file ]] || ((8#$(stat -L --format %a -- "$castoff_file") & 8#77)); then
    echo "others may read or change $castoff_file: castoff notify add $1 replaces it"
  elif ! { read -r castoff_url && read -r castoff_body; } <"$castoff_file" ||
    [[ ! $castoff_url =~ ^https?://[^\"\\]+$ ]]; then
    echo "$castoff_file holds no URL and body: castoff notify add $1 writes both"
  else
    castoff_answer=$(printf 'url = "%s"\n' "$castoff_url" | "${castoff_curl[@]}" -q --config - --silent --globoff \
      --proto '=http,https' --connect-timeout 4 --max-time 5 --output /dev/null --write-out '%{http_code}' \
      --header 'Content-Type: application/json' --data-binary @/dev/fd/3 3< <(castoff_notify_fill "$castoff_body")) ||
      castoff_code=$?
    case $castoff_code in
      0) [[ $castoff_answer == 2* ]] || echo "the server answered HTTP $castoff_answer to $(hostname)" ;;
      5 | 6) echo "$(hostname) does not find the server's or the proxy's name" ;;
      7) echo "$(hostname) cannot connect to the server" ;;
      28) echo "the server did not answer $(hostname) within 5 s" ;;
      127) echo "$(hostname) has no curl" ;;
      *) echo "curl on $(hostname) failed with code $castoff_code" ;;
    esac
  fi
}
castoff_notify_fill() { # BODY: prints it with values in place of {title} and the like
  local castoff_rest=$1 castoff_filled='' castoff_key
  local castoff_keys='title|title_html|text|text_html|text_paragraphs|reason|name|run|site'
  castoff_keys+='|event|state|seconds|command|priority|tag'
  while [[ $castoff_rest =~ \{($castoff_keys)\} ]]; do
    castoff_key=${BASH_REMATCH[1]}
    castoff_filled+=${castoff_rest%%"{$castoff_key}"*}${castoff_values[$castoff_key]}
    castoff_rest=${castoff_rest#*"{$castoff_key}"}
  done
  printf %s "$castoff_filled$castoff_rest"
}
