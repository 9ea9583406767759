"""HBase for tests: `client` speaks to a real one, with `mutations` of rows, and `client_pb2`, generated from
`client.proto`. `distributed` is one of processes to be killed one by one, `model_source` one in memory,
`scripted_server` a server that misbehaves.
"""
