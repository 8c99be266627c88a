castoff_tell_of_stage() { grep 'castoff: staged in' "$CASTOFF_LOG_DIR/stage.log"; }
readonly -f castoff_tell_of_stage
