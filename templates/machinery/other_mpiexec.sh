castoff_check_launcher() { # where it failed, and no rank did: whether it is the site's own
  local castoff_found
  case $(timeout 10 "${castoff_command[0]}" --version 2>&1 </dev/null || true) in
    *"Open MPI"* | *OpenRTE* | *PRTE*) castoff_found=openmpi ;;
    *"Intel(R) MPI"*) castoff_found=intelmpi ;;
    *HYDRA*) castoff_found=hydra ;;
    *) castoff_found=$castoff_launcher_name ;;
  esac
  if [[ $castoff_found != "$castoff_launcher_name" ]]; then
    echo "castoff: this job's launcher is $(command -v "${castoff_command[0]}"), which is $castoff_found," \
      "and the site's is $castoff_launcher_name. Have setup put the site's own first on PATH (module load)," \
      "or set the profile's launcher to $castoff_found" >&2
  fi
}
castoff_on_launcher_failure+=(castoff_check_launcher)
readonly -f castoff_check_launcher
