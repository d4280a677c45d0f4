"""What a service asks of others: recorded by a proxy at its capsule's border (``recorder``), or beside the way (``beside``).

At the border each connection waits with its first packet (``_calls``) until the real one stands. Its first bytes decide
(``_undecided``) who carries it: threads in C (``_pairs``), this process (``_carrier``), or this process with its TLS opened
(``_tls_detection``, ``_tls``). ``_keeper`` holds the sockets, so that they outlive the recorder.
"""
