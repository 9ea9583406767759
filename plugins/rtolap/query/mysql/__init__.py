"""The MySQL protocol's server side is a small layer of our own over one socket and one thread a connection.

`packets` frames bytes; `handshake` logs in (caching_sha2_password, TLS with a certificate); `result_sets`
describes Arrow types as MySQL's and encodes batches column by column; `connection` runs the command phase
over `query.statements`, `prepared` keeps a connection's prepared statements; `server` accepts, limits and
stops connections.

Invariants: nothing is answered before a login has succeeded; a failed login closes the connection; bytes read
before a login and the time it takes are bounded; never more is read from the socket than the packet at hand.
"""
