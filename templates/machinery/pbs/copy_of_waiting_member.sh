castoff_requeue() { # i-(i+1):2 is member i alone. Nothing can wait for a single member, and that the array
  # has begun is so: it replaces what the script itself waits for.
  castoff_submit_copy_at_last -J "$castoff_index-$((castoff_index + 1)):2" -W "depend=after:$castoff_job" \
    -o "$CASTOFF_RUN_DIR/logs/job-^array_index^.log"
}
readonly -f castoff_requeue
