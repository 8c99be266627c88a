LD_LIBRARY_PATH=$LD_LIBRARY_PATH:/.singularity.d/libs # apptainer puts the GPUs' libraries there
