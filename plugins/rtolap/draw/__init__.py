"""Pictures of watermarks, and of replication lag.

`timeline` makes lines and holders of a history, `closings` says when windows could close, `timeline_figure`
draws both; `topology` draws levels and edges, `replication_lag` how far behind peers of HBase were; `figure`
and `axis` are what drawing has in common. matplotlib is the optional extra `plot`; it is loaded when
something is drawn, and only here. Equal input gives an equal SVG: no dates, no random ids.

Never: ask a service, read a clock.
"""
