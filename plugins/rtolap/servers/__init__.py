"""HTTP and Flight servers behind their guards. A guard checks credentials, sizes and turns before the server
reads a byte.

    HTTP        `http_server` runs an application and accepts its connections, `http_protocol` bounds each
                connection, `http_guard` stands before the application
    Flight      `flight_server` is the base of every Flight server, `flight_guard` has its port
    metrics     `metrics_http` counts the requests of an endpoint and serves its page; `metrics_server` serves
                the page of a service that has no HTTP endpoint
    both        `limits` are the bounds of requests, messages and connections, `tls` loads certificates

Every server of the product stands here or, for the MySQL protocol, takes its bounds from `limits`. Nothing in
here knows what a server answers.
"""
