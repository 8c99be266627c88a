export CASTOFF_DEVICE=$((LOCAL_RANK * castoff_device_step)) # among those that this rank sees
