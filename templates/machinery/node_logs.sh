castoff_first_log=node-00000.log
