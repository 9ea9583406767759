"""The coordinator's protocol: REST and JSON, bearer token.

`client` is what services and people call, `messages` are its requests and answers, a module a subject;
`operations` are use cases of several calls.
"""
