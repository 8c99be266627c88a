castoff_advise() {
  echo "castoff: srun waits for CPUs that another step of this job holds" \
    "(squeue --steps --job ${SLURM_JOB_ID:-}), for a container's image," \
    "or for a node that does not answer (scontrol show node NODE)" >&2
}
readonly -f castoff_advise
