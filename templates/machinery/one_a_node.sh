castoff_last_to_end=torchrun
castoff_place() { castoff_name_hosts hostfile 1 "$castoff_nodes"; }
readonly -f castoff_place
