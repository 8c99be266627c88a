eval "exec $castoff_runtime"'"$@"'
