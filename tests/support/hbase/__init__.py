"""A client of a real HBase for tests: `client` speaks to master and region servers, `mutations` makes what is
written, `client_pb2` is generated from `client.proto`.
"""
