export "$castoff_device_variable=$castoff_visible"
