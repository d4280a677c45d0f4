"""Headers of HTTP requests that say nothing about what is asked.

Read on both sides: by the recorder in Python services, and by Relive for what others said over the network.
"""

__all__ = ["VOLATILE"]

# Set by libraries, by tracing or by the moment: a call with other values of these is still the same call.
VOLATILE = frozenset(
    (
        "accept-encoding connection content-length date expect host keep-alive te traceparent tracestate "
        "baggage transfer-encoding user-agent x-request-id x-correlation-id x-amzn-trace-id sentry-trace b3 "
        "x-b3-traceid x-b3-spanid x-b3-sampled x-b3-parentspanid x-cloud-trace-context amz-sdk-invocation-id "
        "amz-sdk-request x-amz-date"
    ).split()
)
