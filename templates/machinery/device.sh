# Finds this rank's device: its index among the visible devices, after masks.
#if masks | indices | near
castoff_own_word() { # WORD...: the word for this local rank
#if together
  shift "$((castoff_seat + LOCAL_RANK))"
#else
  shift "$LOCAL_RANK"
#endif
  castoff_word=$1
}
#endif
castoff_count_shown() { # MASK: counts devices; 0.0,0.1 is one with two tiles; CUDA ignores all after a negative one
  castoff_shown=$(echo "$1" | tr , '\n' | sed '/^-/,$d; /^NoDevFiles/,$d; s/\..*/./; /^$/d' | uniq | wc -l)
}
#if visible | masks
castoff_show() { # MASK in the node's numbers; fails if so few devices are visible that they are renumbered
  eval "castoff_shows=\${$castoff_device_variable-}"
  castoff_count_shown "$castoff_shows"
  castoff_numbers=$1,
  while [ -n "$castoff_shows" ] && [ -n "$castoff_numbers" ]; do
    case $castoff_shows in *MIG-*) return 1 ;; esac
    if [ "${castoff_numbers%%[.,]*}" -ge "$castoff_shown" ]; then return 1; fi
    castoff_numbers=${castoff_numbers#*,}
  done
  export "$castoff_device_variable=$1"
}
#endif
#if visible
castoff_show "$castoff_visible" || :
#endif
#if masks
# shellcheck disable=SC2086 # words
castoff_own_word $castoff_masks
if ! castoff_show "$castoff_word"; then
  castoff_numbers=$(echo "$castoff_word" | tr -cd ,)
  [ "$castoff_shown" -le $((${#castoff_numbers} + 1)) ] ||
    castoff_refuse "rank $RANK is to have device $castoff_word of its node, but" \
      "$castoff_device_variable=$castoff_shows shows it $castoff_shown. Drop what sets $castoff_device_variable," \
      "or ask for no devices (devices_per_rank: 0) and choose them in the program"
fi
#endif
#if taken
# Members share this host: of the devices that the job has there, each member's ranks see those of the member.
castoff_first=$((castoff_seat * castoff_device_step)) castoff_taken=''
castoff_last=$((castoff_first + castoff_ranks_per_node * castoff_device_step))
for castoff_name in CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES ZE_AFFINITY_MASK; do
  eval "castoff_shows=\${$castoff_name-}"
  [ -n "$castoff_shows" ] || continue
  castoff_taken=$(echo "$castoff_shows," | cut -d , -f "$((castoff_first + 1))-$castoff_last")
  [ -n "$(echo "$castoff_shows," | cut -d , -f "$castoff_last")" ] ||
    castoff_refuse "its member needs devices $castoff_first to $((castoff_last - 1))" \
      "of its host, but $castoff_name=$castoff_shows shows the job fewer"
  export "$castoff_name=$castoff_taken"
done
if [ -z "$castoff_taken" ]; then
  [ -n "$castoff_device_variable" ] || castoff_refuse "nothing names this host's devices (CUDA_VISIBLE_DEVICES," \
    "ROCR_VISIBLE_DEVICES, ZE_AFFINITY_MASK), so its members cannot share them: set the profile's node.device_variable"
  export "$castoff_device_variable=$(seq -s , "$castoff_first" "$((castoff_last - 1))")"
fi
#endif
#if indices
# shellcheck disable=SC2086 # words
castoff_own_word $castoff_device_indices
CASTOFF_DEVICE=$castoff_word
#else
CASTOFF_DEVICE=$((LOCAL_RANK * castoff_device_step))
#endif
for castoff_name in CUDA_VISIBLE_DEVICES HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES ZE_AFFINITY_MASK; do
  eval "castoff_shows=\${$castoff_name-}"
  [ -n "$castoff_shows" ] || continue
  castoff_count_shown "$castoff_shows"
  if [ "$castoff_shown" -eq 0 ]; then
    CASTOFF_DEVICE=''
    break
  elif [ "$castoff_shown" -eq 1 ] || [ "$castoff_shown" -le "$castoff_device_step" ]; then
    CASTOFF_DEVICE=0
  elif [ "$CASTOFF_DEVICE" -ge "$castoff_shown" ]; then
    castoff_refuse "the device of rank $RANK is number $CASTOFF_DEVICE of those that it sees, from 0, but" \
      "$castoff_name=$castoff_shows shows it $castoff_shown. Have $castoff_name show as many as the ranks of a node" \
      "need, start fewer ranks on a node, or ask for none (devices_per_rank: 0) and choose devices in the program"
  elif [ "$castoff_shows" != "${castoff_shows#*MIG-}" ]; then # CUDA shows a process only the first MIG device
    castoff_word=$(echo "$castoff_shows" | cut -d , -f $((CASTOFF_DEVICE + 1)))
    export "$castoff_name=$castoff_word" CASTOFF_DEVICE=0
  fi
done
if [ -n "$CASTOFF_DEVICE" ]; then export CASTOFF_DEVICE; else unset -v CASTOFF_DEVICE; fi # unset: no device is visible
#if near
castoff_meet() ( # CPUS CPUS: whether two CPU lists overlap
  IFS=,
  for castoff_one in $1; do
    for castoff_other in $2; do
      [ "${castoff_one%-*}" -gt "${castoff_other#*-}" ] || [ "${castoff_other%-*}" -gt "${castoff_one#*-}" ] || return 0
    done
  done
  return 1
)
castoff_cpus=$(awk '/^Cpus_allowed_list:/ { print $2 }' /proc/self/status 2>/dev/null) || castoff_cpus=''
# shellcheck disable=SC2086 # words
castoff_own_word $castoff_near
if [ "$NODE_RANK" -eq 0 ] && [ -n "$castoff_cpus" ] && ! castoff_meet "$castoff_cpus" "$castoff_word"; then
  echo "castoff: rank $RANK runs on CPUs $castoff_cpus, but its device is beside CPUs $castoff_word, so data" \
    "crosses the node. $castoff_launcher_name or a flag for it binds ranks so; to bind each beside its device, write" \
    "in the job file binding: $castoff_better" >&2
fi
#endif
