"""The operator's page inside Airflow: what it shows, who may see it, and the script that draws it.

    messages    what the routes answer; those of capture and fleet in modules of their own
    answers     how they answer, and how several services are asked at once
    figures     sums over the reports of partitions (pure)
    problems    what needs a person, in words, with what to do (pure)
    overview    services and sums of the cluster (pure)
    cubes       cubes, and one cube with its segments (pure)
    receivers   receivers with their partitions, and running moves (pure)
    stored      stored tables with their replicas, loads by label, loaders and their dead letters
    ask         what a person's statements may be, and how answers are shown
    ask_routes  the routes of statements, below `/rtolap/page/ask`
    capture/    change capture: queues, subscriptions, events that fail
    fleet       Kafka's brokers, their plan, and which are slow (pure); fleet_routes asks
    tasks       links to the tasks that wait for processes (pure)
    rights      who may see the page, and who may start which DAG
    routes      the routes, below `/rtolap/page`
    script      the script, which `make setup` builds out of `ui/`

Everything that the page changes is a run of a DAG, started through Airflow's own API with the rights of who
is signed in: there is no second way to change anything.
"""
