"""Recordings: what crossed the border of a service, in order.

``writer`` writes and ``reader`` reads the files that ``layout`` specifies; ``exchanges`` makes requests and answers of the events.
Who records is in ``relive.proxies``, and in the services themselves (``rings``).
"""
