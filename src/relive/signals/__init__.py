"""Waits for fatal signals in a process tree, and holds the process at that moment so that it can be committed.

The tracer is a process of its own (``tracer``), of which there is one beside each service, so nothing is imported here;
``client.Tracer`` is how the agent talks with it, in the words of ``messages``.
"""
