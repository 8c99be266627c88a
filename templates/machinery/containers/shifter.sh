castoff_runtime_name=shifter castoff_bind_flag=--volume
