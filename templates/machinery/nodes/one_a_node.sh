NODE_RANK=$castoff_process
