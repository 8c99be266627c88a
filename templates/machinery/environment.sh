# --- Environment ----------------------------------------------------------------------------------
#if !script
castoff_clear_stale_env() { # unset what a parent job's launcher set for its ranks; keep what users set for launchers
#if setup
  castoff_unset_user_functions
  castoff_keep_exit
  castoff_listen # again, since setup may have set traps
#endif
  set +C # castoff overwrites its own files
  unset -v CASTOFF_{LAUNCHER,RANK,DEVICE} MASTER_{ADDR,PORT} RANK WORLD_SIZE NODE_RANK ROLE_NAME \
    {LOCAL,GROUP,ROLE}_{RANK,WORLD_SIZE} TORCHELASTIC_{RUN_ID,RESTART_COUNT,MAX_RESTARTS,USE_AGENT_STORE} \
    TORCHELASTIC_{ERROR_FILE,SIGNALS_TO_HANDLE} PMI_{RANK,SIZE,FD,PORT,ID,JOBID,SPAWNED,HOSTNAME} "${!PMI_LOCAL_@}" \
    "${!PMI_CONTROL_@}" "${!PMI_UNIVERSE_@}" "${!PMI_SHARED_@}" "${!PMI_APP_@}" PMIX_{RANK,ID,NAMESPACE,HOSTNAME} \
    "${!PMIX_LOCAL_@}" "${!PMIX_SERVER_@}" "${!OMPI_COMM_WORLD_@}" "${!MPI_LOCAL@}" "${!HYDI_@}" "${!HYDRA_BSTRAP_@}" \
    I_MPI_HYDRA_UUID PALS_{RANKID,NODEID,SIZE,APID} "${!PALS_LOCAL_@}" "${!JSM_NAMESPACE_@}" "${!FLUX_TASK_@}" \
    FLUX_JOB_{SIZE,NNODES} SLURM_{PROCID,LOCALID,NODEID,GTIDS,STEPID} "${!SLURM_STEP_@}" "${!SLURM_LAUNCH_@}" \
    "${!SLURM_SRUN_COMM_@}"
#ifdef castoff_scheduler_clear_env
  castoff_scheduler_clear_env
#endif
  export PYTHONUNBUFFERED=${PYTHONUNBUFFERED-1}
}
#endif
castoff_unset_user_functions() { # drop functions from setup or the environment with the names of commands
  POSIXLY_CORRECT=1 # makes unset the builtin
  unset -f builtin shopt unset && unset -v POSIXLY_CORRECT
  shopt -u inherit_errexit 2>/dev/null || ((1)) # set by POSIXLY_CORRECT, and kept by bash before 5.2
  unset -f awk bash break cat cd chmod cksum cmp command compgen continue cp cut date declare df disown echo env eval \
    exec exit export false find getent grep head hostname id kill local ls mapfile mkdir mktemp mv printf qdel qsub \
    read readonly return rm rmdir scontrol sed set sh sha256sum shift sleep sort squeue stat sync tail tar timeout tr \
    trap true umask unzip wait wc xargs : . # some are called by nodes' programs, whose sh may be bash
}
#if loader
#if here !torchrun !container
castoff_loading= # names, joined by commas
#else
castoff_loading= # lines of sh
#endif
castoff_for_program() { # NAME VALUE: a variable that would affect the launcher and other programs, too
  export "CASTOFF_GIVEN_$1=$2" # the last step before the program renames it to NAME
#if here !torchrun !container
  castoff_loading+=${castoff_loading:+,}$1
#else
  castoff_loading+="[ -z \"\${CASTOFF_GIVEN_$1+set}\" ] || export $1=\"\$CASTOFF_GIVEN_$1\"; "
  castoff_loading+="unset -v CASTOFF_GIVEN_$1; "
#endif
}
#endif
#if inherit
castoff_inherit() { # NAME...: drop all other variables
  local castoff_name castoff_kept_names=" $* "
  while read -r castoff_name; do
    case $castoff_name in
      CASTOFF_* | HOME | LANG | LOGNAME | PATH | PWD | SHELL | TERM | TMPDIR | USER) ;;
      *)
        if [[ $castoff_kept_names != *" $castoff_name "* ]]; then
          unset -v "$castoff_name" 2>/dev/null || true # some are read-only
        fi
        ;;
    esac
  done < <(compgen -e)
  while read -r _ _ castoff_name; do # drop functions, too
    unset -f "$castoff_name" 2>/dev/null || true # castoff's are read-only
  done < <(declare -Fx)
}
#endif
#if secrets
# --- env_from: variables that are not in the script --------------------------------------------------
castoff_hidden= # the variables that castoff submit has written
castoff_read_secrets() { # as this job begins, from the file opened and checked above; it is not read again
  if [[ ! -e $CASTOFF_RUN_DIR/secrets.sh ]]; then return 0; fi
  exec 9<"$CASTOFF_RUN_DIR/secrets.sh"
  if [[ ! -O /dev/fd/9 ]] || (("8#$(stat --dereference --format %a /dev/fd/9)" & 8#22)); then
    echo "castoff: $CASTOFF_RUN_DIR/secrets.sh may be another user's, so it is not read" >&2
    exit 1
  fi
  castoff_hidden=$(cat <&9)
  exec 9<&-
}
castoff_need() { # NAME: export a variable of env_from
  eval "$castoff_hidden"
  if [[ -z ${!1+set} ]]; then
    echo "castoff: env_from names $1, but it is not set; ${castoff_scheduler_advice/NAME/$1}" >&2
    exit 1
  fi
  export "${1?}"
}
castoff_remove_secrets() { # when no job of the run needs them any more; castoff resubmit writes them again
  local castoff_member
  # The scheduler may restart a job that was asked to end or wants to resume; castoff status decides.
  if [[ ! -e $CASTOFF_RUN_DIR/stop && (-n $castoff_terminated || ! $castoff_ending =~ ^(done|failed)$) ]]; then
    return 0
  fi
#if sparse
  while read -r castoff_member; do
#else
  for ((castoff_member = 0; castoff_member < CASTOFF_ARRAY_COUNT; castoff_member++)); do
#endif
    if ((castoff_member != CASTOFF_ARRAY_INDEX)) && ! castoff_is_over "$castoff_member"; then return 0; fi
#if sparse
  done < <(castoff_members)
#else
  done
#endif
  rm -f -- "$CASTOFF_RUN_DIR/secrets.sh"
}
castoff_is_over() { # MEMBER: whether it has ended since its last submission
  local castoff_attempt=0 castoff_file
  while [[ -e $CASTOFF_RUN_DIR/attempts/$1.$((castoff_attempt + 1)) ]]; do
    castoff_attempt=$((castoff_attempt + 1))
  done
  castoff_file=$CASTOFF_RUN_DIR/attempts/$1.$castoff_attempt/ending.json
  [[ $castoff_file -nt $CASTOFF_RUN_DIR/secrets.sh ]] && ! grep -q '"resume"' "$castoff_file"
}
#endif
