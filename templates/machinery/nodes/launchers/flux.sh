castoff_process=${FLUX_TASK_RANK:?castoff: flux run did not say which rank this is}
castoff_local=${FLUX_TASK_LOCAL_ID:?castoff: flux run did not say which local rank this is}
castoff_started=${FLUX_JOB_SIZE:?castoff: flux run did not say how many ranks there are}
castoff_beside_it= # how many ranks are on this node: it does not say so
castoff_end_others() { :; }
