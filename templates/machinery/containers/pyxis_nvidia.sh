castoff_show_nvidia() { # enroot brings them inside for those who ask
  export NVIDIA_VISIBLE_DEVICES=${NVIDIA_VISIBLE_DEVICES-all}
  export NVIDIA_DRIVER_CAPABILITIES=${NVIDIA_DRIVER_CAPABILITIES-compute,utility}
}
castoff_at_container+=(castoff_show_nvidia)
readonly -f castoff_show_nvidia
