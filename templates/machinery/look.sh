# What runs on a node is opened once, and run by what was looked at: nobody can put theirs in its place meanwhile.
# A node that does not share the run directory could only say that a file is not there.
# shellcheck disable=SC2016 # a shell of the node expands it
castoff_read='[ -e "$0" ] || { echo "castoff: $(hostname) does not see ${0%/*}: a run directory must'\
' lie where all nodes see it; castoff submit --runs-dir names another folder" >&2; exit 126; };'\
' exec 9<"$0" && [ -O /proc/self/fd/9 ] && case $(ls -lnL /proc/self/fd/9) in'\
' -????-??-*) exec /bin/sh -c ". /proc/self/fd/9" "$0" "$@" ;; esac;'\
' echo "castoff: others may have written $0 on $(hostname), so it is not run" >&2; exit 126'
castoff_check_run_dir=(/bin/sh -c "${castoff_read//exit 126/${castoff_end_node-exit 126}}")
