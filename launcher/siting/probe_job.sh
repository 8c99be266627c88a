# Queries a node for `castoff sites probe`; each section begins with a line of ==. Nothing here may end the job
# or delay it: a query that fails prints nothing.
set +eu
castoff_say() { printf '== %s\n' "$*"; }
castoff_soon() { timeout -k 1 "$@" </dev/null 2>/dev/null; }

castoff_say host
hostname
castoff_say cpus # CPU,core,socket,node
castoff_soon 5 lscpu -p=CPU,CORE,SOCKET,NODE | grep -v '^#'
castoff_say memory
grep MemTotal /proc/meminfo

castoff_say devices # address, vendor, parts of it, nearest CPUs
for castoff_at in /sys/bus/pci/devices/*; do
  read -r castoff_class <"$castoff_at/class" || continue
  case $castoff_class in 0x03* | 0x1200*) ;; *) continue ;; esac
  read -r castoff_vendor <"$castoff_at/vendor"
  case $castoff_vendor in 0x10de | 0x1002 | 0x8086) ;; *) continue ;; esac # NVIDIA, AMD, Intel; not a console's
  castoff_near=
  read -r castoff_near <"$castoff_at/local_cpulist"
  set -- "$castoff_at"/drm/card*/gt/gt[0-9]*
  [ -e "$1" ] || shift
  echo "${castoff_at##*/} $castoff_vendor $(($# ? $# : 1)) $castoff_near"
done
castoff_say nvidia # in the order of their numbers
castoff_soon 10 nvidia-smi --query-gpu=pci.bus_id,name --format=csv,noheader
castoff_say kfd # AMD's, in the order of their numbers: domain and location
for castoff_at in /sys/class/kfd/kfd/topology/nodes/*/properties; do
  awk '$1 == "simd_count" { s = $2 } $1 == "domain" { d = $2 } $1 == "location_id" { l = $2 }
    END { if (s > 0) print FILENAME, d, l }' "$castoff_at" 2>/dev/null
done | sort -t/ -k7n

castoff_say disks # folders that this user can write to: device, kind, free KiB, folder
for castoff_at in "${TMPDIR:-/tmp}" /tmp /local /local/scratch /local_scratch /localscratch /scratch/local /lscratch \
  /mnt/localdisk /mnt/local /raid /raid/scratch /nvme /ssd /mnt/bb/"$(id -un)" /var/tmp; do
  [ -d "$castoff_at" ] || continue
  [ -w "$castoff_at" ] || [ -w "$castoff_at/$(id -un)" ] || continue
  castoff_soon 5 df -PTk "$castoff_at" | awk -v at="$castoff_at" 'NR == 2 { print $1, $2, $5, at }'
done
castoff_say modules
type module >/dev/null 2>&1 && module -t avail 2>&1 </dev/null | head -n 2000
castoff_say mpiexec
command -v mpiexec
castoff_soon 10 mpiexec --version 2>&1 | head -n 5
castoff_say remote # the scheduler's own way to another host
[ -z "$castoff_remote" ] || command -v "$castoff_remote"

castoff_here=$(hostname)
for castoff_host in $castoff_hosts; do
  [ "${castoff_host%%.*}" != "${castoff_here%%.*}" ] || continue
  castoff_say reach "$castoff_host"
  castoff_soon 8 ssh -o BatchMode=yes -o ConnectTimeout=5 -o StrictHostKeyChecking=no "$castoff_host" true && echo ssh
  [ -n "$castoff_remote" ] && castoff_soon 8 "$castoff_remote" "$castoff_host" true && echo remote
done
castoff_say end
