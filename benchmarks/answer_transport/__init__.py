"""Arrow's stream over the guarded HTTP port beside Flight, for the answers of receivers and storage nodes.

The HTTP endpoint exists for the measurement alone. It is made of the product's own pieces: the server with
its limits, the guard, and the proof that both ends know the cluster's token.
"""
