"""`rtolap fleet`: care of the Kafka brokers. `commands` mounts them all; `access` opens the cluster that is
meant and finds it in the registry, `looking` reads brokers' metrics again and again; each other module is one
command, or a few that belong together.
"""
