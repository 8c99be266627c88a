castoff_requeue() { # Slurm then ends this job, and scontrol with it, maybe before that has its answer
  scontrol requeue "$castoff_member" || (($? == 143))
}
readonly -f castoff_requeue
