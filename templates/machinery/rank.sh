# --- Programs of the nodes: the wrapper of each rank ----------------------------------------------
#if !here
castoff_write_rank() { # write rank.sh, which sets RANK etc., starts the rank's program, and records the first failure
#if fence nodes | fence hosts
  local castoff_guarding
  castoff_guarding=$(declare -f castoff_left castoff_guard)
#endif
  castoff_write rank.sh castoff_nodes castoff_ranks castoff_ranks_per_node castoff_full_nodes castoff_launcher_name \
#if fence nodes | fence hosts
    castoff_guarding castoff_mark \
#endif
#if groups
    castoff_groups \
#endif
#if signal !torchrun
    castoff_chosen_signal castoff_chosen_number castoff_signal_before \
#endif
#if torchrun | container | stage
    castoff_read castoff_staged_path \
#endif
#if stage teardown !driver
    castoff_first_host \
#endif
#if visible | masks | taken
    castoff_device_variable castoff_visible castoff_masks \
#endif
#if devices
    castoff_device_step \
#endif
#if indices
    castoff_device_indices \
#endif
#if near
    castoff_near castoff_better \
#endif
#if binds_ranks
    castoff_cpu_lists \
#endif
#if together
    castoff_seat castoff_per_node \
#endif
#if nodes
    castoff_meeting_names castoff_meeting_host \
#endif
#if preload
    castoff_client castoff_agent castoff_gone \
#endif
#if loader !torchrun !container
    castoff_loading \
#endif
#if many_ranks !container
    castoff_local_stacks \
#endif
    <<'CASTOFF_RANK'
castoff_refuse() { # the launcher placed ranks differently than the script
  echo "castoff: $*" >&2
  kill -s KILL "$$" # some launchers keep the other ranks running after an exit code
}
castoff_started='' castoff_beside_it='' castoff_node='' # not set by every launcher
#if attach
# This launcher starts ranks in new sessions, which PBS accounts, limits and ends only if they are attached. It
# refuses to attach a session twice.
castoff_attach=$(command -v pbs_attach) ||
  castoff_attach=$(. /etc/pbs.conf 2>/dev/null && echo "$PBS_EXEC/bin/pbs_attach") || :
[ -z "$castoff_attach" ] || timeout 10 "$castoff_attach" -j "${PBS_JOBID:-}" -p "$$" >/dev/null 2>&1 || :
#endif
#if driver
castoff_process=0 castoff_local=0 NODE_RANK=0
#else
#include launcher
#endif
#if torchrun
[ "${castoff_started:-$castoff_nodes}" -eq "$castoff_nodes" ] ||
  castoff_refuse "$castoff_launcher_name started $castoff_started processes; this script is for $castoff_nodes"
#else
[ "${castoff_started:-$castoff_ranks}" -eq "$castoff_ranks" ] ||
  castoff_refuse "$castoff_launcher_name started $castoff_started processes; this script is for $castoff_ranks"
#endif
#if fills_nodes
# This launcher fills node after node, but does not set the node's number.
#if torchrun
NODE_RANK=$castoff_process
#elif groups
NODE_RANK=0 castoff_first=0 # first rank of the next group
for castoff_group in $castoff_groups; do
  castoff_first=$((castoff_first + ${castoff_group%x*} * ${castoff_group#*x}))
  NODE_RANK=$((NODE_RANK + ${castoff_group%x*}))
  if [ "$castoff_process" -lt "$castoff_first" ]; then
    NODE_RANK=$((NODE_RANK - 1 - (castoff_first - 1 - castoff_process) / ${castoff_group#*x}))
    break
  fi
done
#else
castoff_first=$((castoff_ranks_per_node * castoff_full_nodes)) # first rank on the nodes with one rank fewer
if [ "$castoff_process" -lt "$castoff_first" ]; then # not ?:, as bash 4.2 would divide by 0 in the skipped branch
  NODE_RANK=$((castoff_process / castoff_ranks_per_node))
else
  NODE_RANK=$((castoff_full_nodes + (castoff_process - castoff_first) / (castoff_ranks_per_node - 1)))
fi
#endif
#endif
#if distribution
LOCAL_WORLD_SIZE=$(($(echo "$SLURM_GTIDS" | tr -cd , | wc -c) + 1)) # only srun knows the placement
#elif groups
castoff_nodes_before=0 LOCAL_WORLD_SIZE=''
for castoff_group in $castoff_groups; do
  castoff_nodes_before=$((castoff_nodes_before + ${castoff_group%x*}))
  if [ "$NODE_RANK" -lt "$castoff_nodes_before" ]; then
    LOCAL_WORLD_SIZE=${castoff_group#*x}
    break
  fi
done
#else
LOCAL_WORLD_SIZE=$((castoff_ranks_per_node - (NODE_RANK >= castoff_full_nodes)))
#endif
#if nodes
if [ "$castoff_process" -eq 0 ] && [ "${castoff_node:-$castoff_meeting_host}" != "$castoff_meeting_host" ]; then
  castoff_refuse "rank 0 runs on $castoff_node, but the ranks are to meet on $castoff_meeting_host, the job's first" \
    "host: leave out what moves rank 0 (launcher.args, SLURM_HOSTFILE), or use --distribution=arbitrary"
fi
for MASTER_ADDR in $castoff_meeting_names ''; do
  [ -n "$MASTER_ADDR" ] ||
    castoff_refuse "$(hostname) knows no address of rank 0's host, so the ranks cannot meet; it tried" \
      "$(echo "$castoff_meeting_names" | tr '\n' ' '); the site's master_suffix is what follows a host's short name"
  castoff_said=0
  timeout 5 getent ahosts "$MASTER_ADDR" >/dev/null 2>&1 || castoff_said=$?
  case $castoff_said in 2 | 124) ;; *) break ;; esac # 2: unknown name; 124: no answer; else use it
done
export MASTER_ADDR
#endif
#if visible torchrun
export "$castoff_device_variable=$castoff_visible"
#endif
#if activate !container
export PATH="$castoff_staged_path$PATH"
#endif
#if torchrun
export NODE_RANK
set -- python -m torch.distributed.run --nnodes="$castoff_nodes" --node-rank="$NODE_RANK" \
  --nproc-per-node="$LOCAL_WORLD_SIZE" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" \
  --no-python /bin/sh -c "$castoff_read" "$CASTOFF_ATTEMPT_DIR/torchrun_rank.sh" "$@"
castoff_local=0
castoff_count=1
#else
[ "${castoff_beside_it:-$LOCAL_WORLD_SIZE}" -eq "$LOCAL_WORLD_SIZE" ] && [ "$castoff_local" -lt "$LOCAL_WORLD_SIZE" ] ||
  castoff_refuse "rank $castoff_process has local rank $castoff_local${castoff_beside_it:+ of $castoff_beside_it};" \
    "this script lays $LOCAL_WORLD_SIZE out there"
#if driver
RANK=0 LOCAL_RANK=0 # not inherited by its workers
#else
export RANK="$castoff_process" LOCAL_RANK="$castoff_local" WORLD_SIZE="$castoff_ranks" LOCAL_WORLD_SIZE NODE_RANK
export CASTOFF_LAUNCHER="$castoff_launcher_name" CASTOFF_RANK="$RANK/$WORLD_SIZE" # children may have another RANK
#endif
#if stage
castoff_count=$LOCAL_WORLD_SIZE
#endif
#endif
#if use
#include use
[ "$castoff_local" -ne 0 ] || castoff_record_use
#endif
#if binds_ranks
# shellcheck disable=SC2086 # words
#if together
castoff_cpus=$(echo $castoff_cpu_lists | cut -d ' ' -f "$((castoff_seat + LOCAL_RANK + 1))")
#else
castoff_cpus=$(echo $castoff_cpu_lists | cut -d ' ' -f "$((LOCAL_RANK + 1))")
#endif
castoff_bound=$(taskset -pc "$castoff_cpus" "$$" 2>&1) ||
  echo "castoff: rank $RANK is not bound to CPUs $castoff_cpus: $castoff_bound" >&2
#endif
#if divided
# The cores that this host has for the job, by their first threads, are divided among the ranks of its members.
castoff_cpus=$(awk -v "place=$((castoff_seat + LOCAL_RANK))" -v "ranks=$((castoff_per_node * castoff_ranks_per_node))" '
  /^Cpus_allowed_list:/ {
    for (n = split($2, parts, ","); ++i <= n;) {
      split(parts[i], ends, "-")
      for (cpu = ends[1]; cpu <= (ends[2] == "" ? ends[1] : ends[2]); cpu++) {
        file = "/sys/devices/system/cpu/cpu" cpu "/topology/thread_siblings_list"
        if ((getline first <file) < 1) first = cpu
        close(file)
        sub(/[,-].*/, "", first)
        if (!(first in cpus)) cores[count++] = first
        cpus[first] = cpus[first] "," cpu
      }
    }
    share = int(count / ranks)
    for (core = place * share; core < (place + 1) * share; core++) list = list cpus[cores[core]]
    print substr(list, 2)
  }' /proc/self/status)
if [ -z "$castoff_cpus" ]; then
  echo "castoff: rank $RANK is not bound: $(hostname) shows it fewer cores than the ranks of the members there" >&2
else
  castoff_bound=$(taskset -pc "$castoff_cpus" "$$" 2>&1) ||
    echo "castoff: rank $RANK is not bound to CPUs $castoff_cpus: $castoff_bound" >&2
fi
#endif
#if devices
#include device
#endif
#if container !launcher_enters
set -- /bin/sh -c "$castoff_read" "$CASTOFF_ATTEMPT_DIR/container.sh" "$@"
#elif container
set -- /bin/sh "$CASTOFF_ATTEMPT_DIR/inside.sh" "$@" # this already runs in the container
castoff_host=${SLURMD_NODENAME:-$(hostname)}
castoff_quiet=1
#endif
#if torchrun
castoff_log=node-$(printf %05d "$NODE_RANK").log
exec 3>>"$CASTOFF_LOG_DIR/$castoff_log"
#elif per_rank_logs
castoff_log=rank-$(printf %05d "$RANK").log
exec 3>>"$CASTOFF_LOG_DIR/$castoff_log"
#else
# A log per rank would overload the file system: write one per node, and one for each rank that fails.
if [ "$LOCAL_RANK" -eq 0 ]; then
  castoff_log=node-$(printf %05d "$NODE_RANK").log
  exec 3>>"$CASTOFF_LOG_DIR/$castoff_log" 4</dev/null
else
  castoff_log=rank-$(printf %05d "$RANK").log
#if launcher_enters
  castoff_buffer=$(mktemp "/tmp/castoff-rank.XXXXXX") || exit 1
#else
  castoff_buffer=$(mktemp "${TMPDIR:-/tmp}/castoff-rank.XXXXXX") || exit 1
#endif
  exec 3>>"$castoff_buffer"
  exec 4<"$castoff_buffer"
  rm -f "$castoff_buffer" # removed now, so that its space is freed with its last user
fi
#endif
#if nodes
# A log shows that its rank has started, except rank 0's, which the script creates.
[ "$castoff_process" -ne 0 ] || rm -f "$CASTOFF_ATTEMPT_DIR/starting"
#endif
#if many_ranks !container
# So would a file of each rank's stacks: they are written to the node's own disk, from which hang.sh collects them.
CASTOFF_STACK_DIR=${TMPDIR:-/tmp}/$castoff_local_stacks
castoff_stack_file=$CASTOFF_STACK_DIR/rank-$(printf %05d "${RANK:-0}").txt
mkdir -m 700 "$CASTOFF_STACK_DIR" 2>/dev/null
{ [ -O "$CASTOFF_STACK_DIR" ] && [ ! -L "$CASTOFF_STACK_DIR" ] && (: >"$castoff_stack_file") 2>/dev/null; } ||
  CASTOFF_STACK_DIR=
#endif
castoff_exec() {
#if per_rank_logs | torchrun
  exec </dev/null >&3 2>&1 3>&-
#else
  exec </dev/null >&3 2>&1 3>&- 4<&-
#endif
#if usr1 usr2
  trap '' USR2 # also sent when the script ends the ranks, which must not end this process
#elif usr1
  trap '' USR1 # also sent when the script ends the ranks, which must not end this one
#endif
#if loader !torchrun !container
  eval "$castoff_loading"
#endif
#if preload
  [ ! -r "$castoff_client" ] || exec "$1" -I -S "$castoff_client" "$castoff_agent" "$castoff_gone" "$@"
#endif
  exec "$@" # exec, so that a program named echo is not sh's builtin
}
#if fence nodes | fence hosts
# A process on each node watches the fence. It closes the launcher's files, or that would wait for it, and does not
# count as a process of the rank.
if [ "$castoff_local" -eq 0 ] && command -v bash >/dev/null; then
  env -u CASTOFF_ATTEMPT_DIR -u RANK bash -ps "$CASTOFF_ATTEMPT_DIR" "$castoff_mark" "$$" \
    <<CASTOFF_GUARD >/dev/null 2>&1 &
$castoff_guarding
castoff_guard "\$@"
#if many_ranks !container
rm -rf -- "\$CASTOFF_STACK_DIR"
#endif
CASTOFF_GUARD
fi
#endif
#if usr1
castoff_on_relay() { # the script's request to stop, if the file exists; otherwise USR1 is for the program
  [ -n "$castoff_ended" ] || [ ! -e "$CASTOFF_ATTEMPT_DIR/terminated" ] || { castoff_ended=1 && castoff_pass_on TERM; }
}
#elif usr2
castoff_on_relay() { castoff_pass_on USR2; }
#else
castoff_on_relay() { castoff_pass_on USR1; }
#endif
#include program
#if many_ranks torchrun !container
rm -rf -- "$CASTOFF_STACK_DIR"
#elif many_ranks !container
[ -z "$CASTOFF_STACK_DIR" ] || { rm -f -- "$castoff_stack_file" && rmdir -- "$CASTOFF_STACK_DIR" 2>/dev/null; }
#endif
if [ "$castoff_code" -ne 0 ] && [ -z "$castoff_ended" ]; then
#if !container
  [ "$castoff_code" -ne 127 ] || [ "$1" != "${1#*/}" ] || command -v "$1" >/dev/null 2>&1 ||
    echo "castoff: no $1 on this job's PATH ($PATH): have setup activate its environment, or set the field python" >&3
#endif
#if torchrun
  # torchrun_rank.sh has recorded the failed rank, unless it was killed with the rank; then torchrun's report is used.
  castoff_cause=$(awk '/^Root Cause \(first observed failure\):/ { cause = 1; rank = code = "" }
    cause && $1 == "rank" { rank = $3 }
    cause && $1 == "exitcode" { code = $3 < 0 ? 128 - $3 : $3; cause = 0 }
    END { if (rank ~ /^[0-9]+$/ && code ~ /^[0-9]+$/ && code > 0 && code < 256) print rank, code }
  ' "$CASTOFF_LOG_DIR/$castoff_log")
  [ -z "$castoff_cause" ] || castoff_code=${castoff_cause#* }
  castoff_cause=${castoff_cause% *}
  castoff_record_failure "${castoff_cause:-null, \"program\": \"torchrun\"}"
#else
#if driver
  castoff_record_failure 'null, "program": "driver"'
#elif per_rank_logs
  castoff_record_failure "$RANK"
#else
  castoff_keep_log() { [ "$LOCAL_RANK" -eq 0 ] || tail -c 1000000 <&4 >"$CASTOFF_LOG_DIR/$castoff_log"; }
  if mkdir "$CASTOFF_ATTEMPT_DIR/ended/failed-$NODE_RANK" 2>/dev/null; then # the first rank on this host to fail
    castoff_keep_log
    castoff_record_failure "$RANK"
  else
    ! castoff_record_failure "$RANK" || castoff_keep_log
  fi
#endif
#endif
#if survives
  kill -s KILL "$$" # this launcher keeps the other ranks running after an exit code
#endif
fi
#if torchrun
[ "$castoff_code" -ne 0 ] || (: >"$CASTOFF_ATTEMPT_DIR/ended/node-$NODE_RANK") 2>/dev/null
#elif many_ranks by_ssh nodes | many_ranks hang
if [ "$castoff_code" -eq 0 ]; then # a file for each host, which gets another name once all ranks there have succeeded
  castoff_file=$CASTOFF_ATTEMPT_DIR/ended/ranks-$NODE_RANK
  [ "$RANK" -ne 0 ] || : >"$CASTOFF_ATTEMPT_DIR/ended/0"
  echo "$RANK $(date +%s)" >>"$castoff_file"
  [ "$(grep -c '' "$castoff_file")" -lt "$LOCAL_WORLD_SIZE" ] || mv "$castoff_file" "${castoff_file%/*}/all-$NODE_RANK"
fi 2>/dev/null
#elif per_rank_logs | by_ssh nodes | hang
[ "$castoff_code" -ne 0 ] || (: >"$CASTOFF_ATTEMPT_DIR/ended/$RANK") 2>/dev/null
#else
[ "$castoff_code" -ne 0 ] || [ "$LOCAL_RANK" -ne 0 ] || (: >"$CASTOFF_ATTEMPT_DIR/ended/$RANK") 2>/dev/null
#endif
#if stage teardown !driver
[ "$(hostname)" != "$castoff_first_host" ] || exit "$castoff_code" # teardown may need the staged files on this host
#endif
#if stage restart !driver
[ -e "$CASTOFF_ATTEMPT_DIR/terminated" ] || exit "$castoff_code" # the next attempt needs the staged files
#endif
#if stage !driver
# The last rank of a node removes the staged files, since nothing else can in a job that is being ended.
mkdir "$CASTOFF_STAGE_DIR/.castoff-end-$castoff_local" 2>/dev/null
set -- "$CASTOFF_STAGE_DIR"/.castoff-end-*
if [ "$#" -ge "$castoff_count" ]; then
  castoff_limit=60
  [ -z "$castoff_ended" ] || castoff_limit=4
  (
    [ -z "${castoff_quiet:-}" ] || exec 2>/dev/null
    exec timeout "$castoff_limit" /bin/sh -c "$castoff_read" "$CASTOFF_ATTEMPT_DIR/stage.sh" \
      clean "$CASTOFF_STAGE_DIR" ""
  ) &
  castoff_program=$!
  while kill -s 0 "$castoff_program" 2>/dev/null; do wait "$castoff_program"; done
fi
#endif
exit "$castoff_code"
CASTOFF_RANK
}
#endif
#if torchrun
castoff_write_torchrun_rank() { # write torchrun_rank.sh, around each of torchrun's ranks, as its code hides theirs
#if signal loader
  castoff_write torchrun_rank.sh castoff_loading castoff_chosen_signal castoff_chosen_number castoff_signal_before \
    <<'CASTOFF_TORCHRUN_RANK'
#elif signal
  castoff_write torchrun_rank.sh castoff_chosen_signal castoff_chosen_number castoff_signal_before \
    <<'CASTOFF_TORCHRUN_RANK'
#elif loader
  castoff_write torchrun_rank.sh castoff_loading <<'CASTOFF_TORCHRUN_RANK'
#else
  castoff_write torchrun_rank.sh <<'CASTOFF_TORCHRUN_RANK'
#endif
#if here
castoff_log=rank-00000.log # torchrun's
#else
castoff_log=node-$(printf %05d "$NODE_RANK").log # torchrun's
#endif
#if loader
castoff_exec() {
  eval "$castoff_loading"
  exec "$@" </dev/null
}
#else
castoff_exec() { exec "$@" </dev/null; }
#endif
#if usr2
castoff_on_relay() { castoff_pass_on USR2; }
#else
castoff_on_relay() { castoff_pass_on USR1; }
#endif
#include program
# If it has restarts left, torchrun restarts all ranks.
if [ "$castoff_code" -ne 0 ] && [ -z "$castoff_ended" ] &&
  [ "${TORCHELASTIC_RESTART_COUNT:-0}" -ge "${TORCHELASTIC_MAX_RESTARTS:-0}" ]; then
  castoff_record_failure "$RANK"
fi
#if many_ranks hang
[ "$castoff_code" -ne 0 ] || echo "$RANK $(date +%s)" >>"$CASTOFF_ATTEMPT_DIR/ended/ranks-$NODE_RANK" 2>/dev/null
#elif hang
[ "$castoff_code" -ne 0 ] || (: >"$CASTOFF_ATTEMPT_DIR/ended/$RANK") 2>/dev/null
#else
{ [ "$castoff_code" -ne 0 ] || [ "${WORLD_SIZE:-0}" -gt 256 ] || (: >"$CASTOFF_ATTEMPT_DIR/ended/$RANK"); } 2>/dev/null
#endif
exit "$castoff_code"
CASTOFF_TORCHRUN_RANK
}
#endif
