"""HBase change capture, the side-effect processor: WAL edits of a real HBase become ordered row events.

Words are HBase's own. A *subscription* declares which tables are followed and where to. A *peer* is the
cluster that HBase believes it replicates to: here, a *consumer*, whose ports are its *sinks*. A region
server ships *WAL edits*, many in a call; each is a list of *cells* with one *sequence id* of its *region*.
An *event* is what one edit did to one row. A *listener* takes events. A *queue* is the list of logs that a
region server has yet to ship, a *recovered queue* that of a server that is gone.

`hbase` speaks the protocols of HBase, `events` turns calls into batches of events, `consumer` serves the
ports, `delivery` lets each event through once, in order, to one of the `listeners`. `shares` divides the rows
of a subscription among several consumers. `rows` reads rows of HBase again for those that mirror them.
`subscriptions` makes and removes what HBase has to have for all that. `status` says how far behind the queues
of any peer are. `operations` are the use cases that the command line and Airflow share.
"""
