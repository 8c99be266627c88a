castoff_tell_of_stage() { # of that many nodes, the fastest and the slowest
  sed -n 's/.*castoff: staged in \([0-9]* s on .*\)/\1/p' "$CASTOFF_LOG_DIR/stage.log" | sort -n |
    awk 'NR == 1 { fastest = $0 } END { print "castoff: staged on " NR " nodes, from " fastest " to " $0 }'
}
readonly -f castoff_tell_of_stage
