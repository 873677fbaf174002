"""The edge: pure ASGI middleware around the routes, in the order in which a request meets it.

request id, access log, problems, hosts, size, authentication, rates.
"""
