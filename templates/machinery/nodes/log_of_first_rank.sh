castoff_log=rank-00000.log # torchrun's
