#!/bin/bash
# Runs a command, pytest with its words, whose tests write to memory: COMMAND…
#
# They write some hundred thousand small files and wait for the disk after many of them, which takes a third of
# their time. Only root can mount something; for anybody else, or with little memory, the disk it is. What the
# tests that failed have written is copied there in the end.
set -u

ENOUGH=8000000 # kB

if [[ $1 != --inside ]]; then
  available=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB$/\1/p' /proc/meminfo 2>/dev/null)
  if [[ $(id -u) != 0 || ${available:-0} -lt $ENOUGH || -n ${PYTEST_DEBUG_TEMPROOT-} ]] ||
    ! unshare --mount true 2>/dev/null; then
    exec "$@"
  fi
  PYTEST_DEBUG_TEMPROOT=$(mktemp --directory "${TMPDIR:-/tmp}/castoff-tests-XXXXXX") || exit
  export PYTEST_DEBUG_TEMPROOT
  trap : INT TERM # what runs inside hears them, and ends
  unshare --mount bash "$0" --inside "$@"
  code=$?
  rmdir --ignore-fail-on-non-empty "$PYTEST_DEBUG_TEMPROOT"
  exit "$code"
fi

shift
disk=$PYTEST_DEBUG_TEMPROOT.kept
mount -t tmpfs -o mode=755 castoff-tests "$PYTEST_DEBUG_TEMPROOT" || exit
trap : INT TERM
"$@"
code=$?
if [[ $code != 0 ]]; then
  cp --archive "$PYTEST_DEBUG_TEMPROOT" "$disk" && echo "What failed tests have written is in $disk."
fi
exit "$code"
