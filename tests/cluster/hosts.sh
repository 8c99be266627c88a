#!/bin/bash
# The first process of pid, mount and network namespaces of its own: it makes hosts there, each with a
# name, an address and a /dev/shm of its own, on a network that nothing else is on. It lives until its
# standard input ends, and with it ends everything in there, however whoever started it came to its end.
#
#   unshare --pid --fork --kill-child --mount --net bash hosts.sh SLURM_CONF_FOLDER HOST…
#
# It prints a line for each host: its name, and the process (of this pid namespace) that holds it.
set -euo pipefail

etc_slurm=$1
shift

mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run # the daemons' sockets and keys: not the machine's own
mount --bind "$etc_slurm" /etc/slurm

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

cat >/dev/null
