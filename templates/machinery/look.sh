# A node that does not share the run directory could only say that a file is not there.
# shellcheck disable=SC2016 # a shell of the node expands it
castoff_look=(/bin/sh -c '[ -e "$0" ] || { echo "castoff: $(hostname) does not see ${0%/*}: a run directory must'\
' lie where all nodes see it; castoff submit --runs-dir names another folder" >&2; '"$castoff_end_node"'; };'\
' exec "$0" "$@"')
