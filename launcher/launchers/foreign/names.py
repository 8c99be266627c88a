"""The names of launchers: of programs that start the ranks of all nodes."""

MPI = ("mpiexec", "mpirun", "mpiexec.hydra", "orterun", "mpirun_rsh")
"""Those of MPI's distributions."""

LAUNCHERS = ("srun", *MPI)
"""Those whose first word tells; `flux` has other commands, too."""
