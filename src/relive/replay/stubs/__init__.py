"""Stubs: the databases, caches and servers of a recording, who answer a branch's service over its sealed network.

``protocols/egress_window.py`` reads what was recorded; ``plan.py`` decides from it and from the commit's connections
who must be there and which calls may be given; ``server.py`` owns the sockets in the branch, ``conversation.py`` one of
them; what is said on them is the protocols' affair (``relive.protocols``). ``process.py`` is the server as a process of
its own.
"""
