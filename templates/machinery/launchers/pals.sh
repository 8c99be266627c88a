#if node
castoff_process=${PALS_RANKID:?castoff: PALS did not say which rank this is}
castoff_local=${PALS_LOCAL_RANKID:?castoff: PALS did not say which local rank this is}
NODE_RANK=${PALS_NODEID:?castoff: PALS did not say which node this is}
castoff_beside_it=${PALS_LOCAL_SIZE:-}
#else
# --- PALS -----------------------------------------------------------------------------------------
castoff_launcher_name=pals
#if nodes !driver
castoff_launcher_advise() {
  echo "castoff: PALS starts ranks by a daemon on each node. Where one does not answer," \
    "pbsnodes NODE shows the node's state, and the site's support wants its name" >&2
}
#endif
#endif
