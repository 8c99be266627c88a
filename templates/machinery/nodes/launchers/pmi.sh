castoff_process=${PMI_RANK:?castoff: mpiexec did not say which rank this is}
castoff_local=${MPI_LOCALRANKID:?castoff: mpiexec did not say which local rank this is}
castoff_started=${PMI_SIZE:?castoff: mpiexec did not say how many ranks there are}
castoff_beside_it=${MPI_LOCALNRANKS:-}
castoff_end_others() { kill -s KILL "$$"; } # on an exit code alone it would let the others run on
