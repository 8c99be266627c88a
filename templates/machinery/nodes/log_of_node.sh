castoff_log=node-$(printf %05d "$NODE_RANK").log # torchrun's
