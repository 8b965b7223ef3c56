"""What is served by HTTP: the page, the metrics, and the gRPC services as JSON.

    GET  /                            the page (static files)
    GET  /metrics                     for Prometheus
    POST /octavo.v1.Service/Method    JSON of the request in; JSON of the response out, or server-sent events

The services are the same objects that gRPC calls, and the same table says who may call which method.
"""
