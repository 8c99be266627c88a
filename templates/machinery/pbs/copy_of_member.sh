castoff_requeue() { # i-(i+1):2 is member i alone. Nothing can wait for a single member
  castoff_submit_copy_at_last -J "$castoff_index-$((castoff_index + 1)):2" \
    -o "$CASTOFF_RUN_DIR/logs/job-^array_index^.log"
}
readonly -f castoff_requeue
