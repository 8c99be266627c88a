"""Files and folders that are whole on the disk, and locks on them."""
