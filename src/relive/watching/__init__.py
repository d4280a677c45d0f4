"""Watching containers that run already: what the agent of a capsule does, from outside and for as long as it is wanted.

A container belongs to its engine, which starts, stops and restarts it. The watch looks on: it asks the engine how the container
is, follows its output, waits for fatal signals, stands in front of its port, drains the rings of its Python processes, and has
commits taken. ``relive stop`` ends the watch, never the container.

*Start*: one life of the container's process 1, from its start to its end; a container that is restarted has many.
"""
