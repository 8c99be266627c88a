"""A double of OpenPBS: its commands, and a small server and moms that run jobs on the hosts of a cluster.

What it says and does was recorded from OpenPBS 23.06.06 (tests/pbs/record.py), and tests/pbs/test_double.py
compares the two. It knows what castoff uses; whatever else is asked of it, it refuses, saying that it is
the double.

    qsub.py, queries.py, orders.py     the commands, each a process that asks the server
    server.py                          has the jobs: queues, dependencies, arrays, history
    jobs.py, placing.py                a job, and where its chunks go
    mom.py                             one on each node: runs scripts, watches their walltime
    showing.py                         how qstat shows a job
"""
