castoff_advise() {
  echo "castoff: an mpiexec that is not built for this scheduler reaches other hosts by ssh," \
    "and waits for one that does not answer. Where ssh is closed between nodes, name a wrapper" \
    "round pbs_tmrsh in the job's env: OMPI_MCA_plm_rsh_agent=WRAPPER (docs/pbs.md has one)" >&2
}
readonly -f castoff_advise
