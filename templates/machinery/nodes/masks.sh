castoff_mask() { # MASK of each local rank...
  shift "$LOCAL_RANK"
  export "$castoff_device_variable=$1"
}
# shellcheck disable=SC2086 # words
castoff_mask $castoff_masks
