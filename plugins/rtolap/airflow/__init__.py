"""The Airflow side: a thin face on the coordinator and the agents. The only room that imports airflow.

    connection   where coordinator and agent are: from an Airflow connection, else from RTOLAP_* variables
    hook         talks                          RtolapHook
    process      long-running processes         ManagedProcessOperator
    services     those without end              ReceiverOperator, LoaderOperator, SubscriptionOperator
    declared, receivers, loaders, subscriptions which of them this deployment runs
    service_dag  the DAGs that keep them running
    build        Spark builds                   SparkBuildOperator
    hooks.spark  how a build is submitted, as `spark_default` says
    hooks.kafka  how Kafka is reached, as `kafka_default` says
    hooks.hbase  which HBase, as `hbase_default` says, and what is asked of it
    hooks.on_demand   opens the last two, whose libraries are loaded only then
    operators.subscriptions   those of HBase: CreateSubscriptionOperator, DropSubscriptionOperator
    sensors.replication   what was written to HBase is delivered: ReplicationWaitSensor
    topics, lag  whether topics are there, and how far who reads them is: CheckTopicsOperator, LagSensor
    operators    short calls                    Promote, Purge, Retention, Cleanup, Requeue
    approval     people about windows           WindowApprovalOperator, ApproveWindowOperator
    sensors      RemotePersistedSensor, LowWatermarkSensor, WindowCompleteSensor; always deferred
    loaded_sensor   LoadedSensor
    completeness    which partitions of a loaded table are complete
    windows, words   a window of an application, and who holds it, in words
    overdue, incomplete   which windows a person is asked about, and which builds wait for that
    triggers     what waits in the triggerer; their arguments are fields (triggers.fields)
    assets       the watched assets, declared once
    links, routes, plugin, provider             what the web page shows

Invariants
    - A process belongs to an agent, never to a task: tasks request a generation and wait. A lost worker,
      triggerer or scheduler stops nothing; a lease ends what nobody waits for any more.
    - An asset event says "look at the queue", never "build this": the queue is the coordinator's.
    - Every operator may be retried, cleared or run twice.
    - Nothing incomplete is approved but by a person whom Airflow has signed in; silence approves nothing.
It never decides when a segment closes or what a build contains: that is the coordinator's part.
"""
