castoff_runtime_name=apptainer castoff_bind_flag=--bind castoff_unbindable=':,\^'
