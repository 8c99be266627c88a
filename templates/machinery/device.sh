# Which of the devices that this rank sees is its own: an index among those that masks show, if there are any.
castoff_count_shown() { # MASK; 0.0,0.1 is one device, with two tiles
  castoff_shown=0 castoff_before='' castoff_left=$1,
  while [ -n "$castoff_left" ]; do
    castoff_entry=${castoff_left%%,*}
    castoff_left=${castoff_left#*,}
    case $castoff_entry in
      *.*) [ "${castoff_entry%%.*}" = "$castoff_before" ] || castoff_shown=$((castoff_shown + 1)) ;;
      *) castoff_shown=$((castoff_shown + 1)) ;;
    esac
    castoff_before=${castoff_entry%%.*}
  done
}
CASTOFF_DEVICE=$((LOCAL_RANK * castoff_device_step))
for castoff_name in CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES ZE_AFFINITY_MASK; do
  eval "castoff_shows=\${$castoff_name-}"
  [ -n "$castoff_shows" ] || continue
  castoff_count_shown "$castoff_shows"
  if [ "$castoff_shown" -eq 1 ]; then
    CASTOFF_DEVICE=0
  elif [ "$CASTOFF_DEVICE" -ge "$castoff_shown" ]; then
    castoff_refuse "the device of rank $RANK is number $CASTOFF_DEVICE of those that it sees, from 0, but" \
      "$castoff_name=$castoff_shows shows it $castoff_shown. Have $castoff_name show as many as the ranks of a node" \
      "need, start fewer ranks on a node, or ask for none (devices_per_rank: 0) and choose devices in the program"
  fi
done
export CASTOFF_DEVICE
