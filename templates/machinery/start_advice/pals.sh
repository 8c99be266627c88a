castoff_advise() {
  echo "castoff: PALS starts ranks by a daemon on each node. Where one does not answer," \
    "pbsnodes NODE shows the node's state, and the site's support wants its name" >&2
}
readonly -f castoff_advise
