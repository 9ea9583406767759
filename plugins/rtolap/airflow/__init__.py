"""The Airflow side: a thin face on the coordinator and the agents. The only room that imports airflow.

    hooks        connections, and the clients that they lead to
      connection   where coordinator and agent are: from an Airflow connection, else from RTOLAP_* variables
      rtolap       RtolapHook: talks to them, and to loaders
      spark        how a build is submitted, as `spark_default` says
      kafka, fleet   how Kafka is reached, as `kafka_default` says, and the care of a cluster
      hbase        which HBase, as `hbase_default` says (`hbase_connection`: its names), and calls to it
      on_demand    opens the last two lines' hooks, whose libraries are loaded only then
    operators    what a task does
      process      long-running processes         ManagedProcessOperator
      services     those without end              Receiver-, Loader-, Subscription-, PublicationOperator
      build, build_batch   Spark builds           SparkBuildOperator
      merging      small segments to large sets   MergeSegmentsOperator
      spark_rounds what those two share
      coordinator  short calls                    Promote, Purge, Retention, Cleanup, Requeue
      topics       are they there                 CheckTopicsOperator
      subscriptions   those of HBase              CreateSubscriptionOperator, DropSubscriptionOperator
      fleet        Kafka's brokers                PlanFleet-, SubmitPlan-, BrokerOperationOperator
      window_approval   people about windows      WindowApprovalOperator, ApproveWindowOperator
      notices      tell people, each thing once   TellOverdueWindows-, TellDeadLettersOperator
      lineage      what builds and loads have made of what
    sensors      what a task waits for, always deferred but for those of `fleet`
    triggers     what waits in the triggerer; their arguments are fields (triggers.base)
    declared     which services this deployment runs
    fleet_dags   the DAGs of Kafka's brokers
    completeness    which partitions of a loaded table are complete
    windows, words   a window of an application, and who holds it, in words
    overdue      which windows a person is asked about, and which builds wait for that
    assets       the watched assets, declared once; letter_assets: topics of dead letters
    ready_assets, outlets   what tasks announce as they succeed, each event once; names of datasets
    notify, notices   who is told, and in which words
    executor     one execution of a task at a time
    links, plugin, provider                       what the web page shows

Invariants
    - A process belongs to an agent, never to a task: tasks request a generation and wait. A lost worker,
      triggerer or scheduler stops nothing; a process is stopped when its task has ended.
    - An asset event says "look at the queue", never "build this": the queue is the coordinator's.
    - Every operator may be retried, cleared or run twice.
    - Nothing incomplete is approved but by a person whom Airflow has signed in; silence approves nothing.
It never decides when a segment closes or what a build contains: that is the coordinator's part.
"""
