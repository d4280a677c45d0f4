"""What clients ask a service: recorded by a reverse proxy (``proxy``), or beside the way (``capture``).

The proxy: connections of plain HTTP/1 are the relay's; all others, and those that the relay hands over (``_carriage``), are a
``_connection`` each, with what a client sent (``_intake``), requests (``_requests``) and answers (``_answers``) in files of their
own. ``_traffic`` is what they share.

Beside the way: ``spool`` (packets), ``_segments``, ``_reassembly`` (bytes of one direction), ``_observed`` (one connection), and
``_sights``, which has the same done in C for plain HTTP/1. ``_sightings`` keeps all connections of the port.
"""
