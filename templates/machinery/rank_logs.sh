castoff_first_log=rank-00000.log
