castoff_refuse() { # this is not how the script laid the ranks out
  echo "castoff: $*" >&2
  kill -s KILL "$$" # on an exit code alone some launchers let the other ranks run on
}
castoff_check_started() { # PROCESSES
  [ "${castoff_started:-$1}" -eq "$1" ] ||
    castoff_refuse "$castoff_launcher_name started $castoff_started processes; this script is for $1"
}
