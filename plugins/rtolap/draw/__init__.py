"""Pictures of watermarks, of replication lag, and of Kafka's fleets.

`timeline` makes lines and holders of a history, and finds when windows could close, `timeline_figure` draws
them; `topology` draws levels and edges, `replication_lag` how far behind peers of HBase were, `fleet_stages`
and `fleet_utilisation` what brokers did and hold; `figure` and `axis` are what drawing has in common.
matplotlib is the optional extra `plot`; it is loaded when something is drawn, and only here. Equal input
gives an equal SVG: no dates, no random ids.

Never: ask a service, read a clock.
"""
