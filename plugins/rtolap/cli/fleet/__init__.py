"""`rtolap fleet` cares for the Kafka brokers. `commands` mounts all commands; `access` opens the named
cluster and finds it in the registry; `looking` reads brokers' metrics again and again; each other module
is one command, or a few that belong together."""
