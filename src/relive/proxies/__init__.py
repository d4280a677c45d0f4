"""The recording proxies: before a service (``ingress``) and behind it (``egress``), and what both have.

Each comes in two kinds: a proxy, through which the bytes go, recorded before they are passed on, and a recorder *beside the way*,
which reads copies of packets and carries nothing. Where bytes need only be carried or put together, threads in C do it
(``relay``), and the recording is written by them and by Python alike (``relay_writer``).
"""
