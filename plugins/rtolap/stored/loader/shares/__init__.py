"""Several processes of one job, which divide the topic's partitions among them.

The partitions are divided into shares. A share has a lease, records and labels of its own and is loaded as an
undivided job is, so what holds for one process of a job holds for each share, whoever owns it. A process that
has lost a share cannot write to its records.

    states        what a process does with a share: a pure table
    assignment    which process is to own which share: pure
    process_count how many processes the lag asks for: pure
    portion       into how many shares a topic is divided, and the bounds of one
    division      a job becomes a divided one
    leader        the owner of the job: divides, counts, assigns
    member        a process of the job: follows what is assigned
    share_run     a share in a process: its thread
    process       the process: its threads, and its end
    supervision   process 0 has the agent run the others
    status        the status of the job, and of each process
"""
