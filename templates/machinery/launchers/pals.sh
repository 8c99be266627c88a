#if node
castoff_process=${PALS_RANKID:?castoff: PALS did not say which rank this is}
castoff_local=${PALS_LOCAL_RANKID:?castoff: PALS did not say which local rank this is}
NODE_RANK=${PALS_NODEID:?castoff: PALS did not say which node this is}
castoff_beside_it=${PALS_LOCAL_SIZE:-}
#else
# --- PALS -----------------------------------------------------------------------------------------
castoff_launcher_name=pals
#if hosts
castoff_launcher_each() { # FILE COUNT of hosts: set the flags for one process on each
  castoff_flags=(-n "$2" --hostfile "$1")
}
#endif
#if spares | together
castoff_launcher_place() { castoff_flags=(--hostfile "$CASTOFF_ATTEMPT_DIR/hosts"); }
#endif
#if nodes !driver
castoff_launcher_advise() {
  echo "castoff: PALS starts ranks by a daemon on each node. Where one does not answer," \
    "pbsnodes NODE shows the node's state, and the site's support wants its name" >&2
}
#endif
#endif
