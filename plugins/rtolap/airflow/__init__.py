"""The Airflow side: a thin face on the coordinator and the agents. The only room that imports airflow.

    connection   where coordinator and agent are: from an Airflow connection, else from RTOLAP_* variables
    hook         talks                          RtolapHook
    process      long-running processes         ManagedProcessOperator, ReceiverOperator
    build        Spark builds                   SparkBuildOperator
    operators    short calls                    Promote, Purge, Retention, Cleanup, Requeue
    sensors      RemotePersistedSensor, LowWatermarkSensor; always deferred
    triggers     what waits in the triggerer
    assets       the watched asset, declared once
    links, routes, plugin, provider             what the web page shows

Invariants
    - A process belongs to an agent, never to a task: tasks ask for a generation and wait. A lost worker,
      triggerer or scheduler stops nothing; a lease ends what nobody waits for any more.
    - An asset event says "look at the queue", never "build this": the queue is the coordinator's.
    - Every operator may be retried, cleared or run twice.
It never decides when a segment closes or what a build contains: that is the coordinator's part.
"""
