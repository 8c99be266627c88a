#!/bin/bash
# The first process of pid, mount and network namespaces of its own: it makes hosts there, each with a
# name, an address and a /dev/shm of its own, on a network that nothing else is on. It lives until its
# standard input ends or says a line, and with it ends everything in there, however whoever started it
# came to its end. (If it is itself killed, the kernel clears all but empty control groups.)
#
#   unshare --pid --fork --kill-child --mount --net bash hosts.sh MEMORY_GROUP [PATH PLACE]… -- HOST…
#
# MEMORY_GROUP is a folder that it makes for control groups of memory, and removes at its end, or nothing.
# On the hosts each PATH stands in its PLACE, which exists already.
# It prints a line for each host: its name, and the process (of this pid namespace) that holds it.
set -euo pipefail

memory_group=$1
shift

leave_no_group() { # only groups without processes go, and processes need a moment
  exec 2>/dev/null # of whose end nobody may be left to read
  kill -KILL -1 2>/dev/null || true
  for _ in {1..600}; do
    find "$memory_group" -depth -type d -exec rmdir {} + 2>/dev/null || true
    [[ -e $memory_group ]] || break
    sleep 0.05
  done
}

mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run # the daemons' sockets and keys: not the machine's own
if [[ -n $memory_group ]]; then
  trap leave_no_group EXIT
  mkdir -p "$memory_group" /run/cgroup/memory
  mount --bind "$memory_group" /run/cgroup/memory
fi
while [[ $1 != -- ]]; do
  mount --bind "$1" "$2"
  shift 2
done
shift

number=10
echo "127.0.0.1 localhost" >/run/hosts
for name; do
  echo "10.77.0.$number $name" >>/run/hosts
  number=$((number + 1))
done
mount --bind /run/hosts /etc/hosts

hold_host() { # NAME ADDRESS
  hostname "$1"
  mount -t tmpfs tmpfs /dev/shm
  ip link set lo up
  ip link add eth0 type veth peer name "$1" netns 1
  ip address add "$2/24" dev eth0
  ip link set eth0 up
  echo "$1 $$" >&3
  exec sleep infinity 3>&-
}
export -f hold_host

mkfifo /run/held
exec 3<>/run/held
ip link set lo up
ip link add bridge type bridge
ip link set bridge up
while read -r address name; do
  [[ $name == localhost ]] ||
    unshare --net --uts --mount bash -euc 'hold_host "$@"' hold "$name" "$address" </dev/null >/dev/null &
done </run/hosts
for _; do
  read -r name process <&3
  ip link set "$name" master bridge up
  echo "$name $process"
done
exec >&- 3>&-

read -r _ || true
