castoff_advise() {
  echo "castoff: flux run waits for cores that another of this job's programs holds (flux jobs)," \
    "or for a node that does not answer (flux overlay status)" >&2
}
readonly -f castoff_advise
