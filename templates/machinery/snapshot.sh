castoff_snapshot() {
  export CASTOFF_SUBMIT_DIR=$castoff_submit_dir
  export CASTOFF_CODE_DIR=$CASTOFF_RUN_DIR/code.workdir # the same folder in the copy of the code
  if [[ ! -e $CASTOFF_RUN_DIR/code.json ]]; then # castoff submit writes it
    echo "castoff: no snapshot was taken for this script: the ranks run the code in $PWD as it is now" >&2
    CASTOFF_CODE_DIR=$castoff_submit_dir
  fi
}
readonly -f castoff_snapshot
