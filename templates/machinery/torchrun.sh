# --- torchrun: one process a node, which starts the node's ranks ----------------------------------
castoff_at_start+=(castoff_write_torchrun_rank)
