castoff_runtime_name=podman-hpc castoff_bind_flag=--volume castoff_unbindable=:
