castoff_process=${OMPI_COMM_WORLD_RANK:?castoff: Open MPI did not say which rank this is}
castoff_local=${OMPI_COMM_WORLD_LOCAL_RANK:?castoff: Open MPI did not say which local rank this is}
castoff_started=${OMPI_COMM_WORLD_SIZE:?castoff: Open MPI did not say how many ranks there are}
castoff_beside_it=${OMPI_COMM_WORLD_LOCAL_SIZE:-}
castoff_end_others() { :; }
