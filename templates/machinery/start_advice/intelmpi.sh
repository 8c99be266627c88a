castoff_advise() {
  if [[ -n ${SLURM_JOB_ID:-} ]]; then
    echo "castoff: in a job of Slurm's mpiexec reaches other hosts by srun:" \
      "squeue --steps --job $SLURM_JOB_ID shows what holds it up" >&2
    return
  fi
  echo "castoff: mpiexec reaches other hosts by ssh, and waits for ever for one that does not answer." \
    "Where ssh is closed between nodes, name a wrapper round pbs_tmrsh in the job's env:" \
    "I_MPI_HYDRA_BOOTSTRAP=ssh I_MPI_HYDRA_BOOTSTRAP_EXEC=WRAPPER (docs/pbs.md has one)" >&2
}
readonly -f castoff_advise
