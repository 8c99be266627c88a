castoff_process=${PALS_RANKID:?castoff: PALS did not say which rank this is}
castoff_local=${PALS_LOCAL_RANKID:?castoff: PALS did not say which local rank this is}
NODE_RANK=${PALS_NODEID:?castoff: PALS did not say which node this is}
castoff_started= # it does not say so under every --pmi
castoff_beside_it=${PALS_LOCAL_SIZE:-}
castoff_end_others() { kill -s KILL "$$"; } # on an exit code alone it would let the others run on
