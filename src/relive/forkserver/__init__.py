"""The fork server: a process that has imported Relive, and from which others are forked instead of executed.

A Python process beside a service is mostly modules, and those are the same in each. Forked from one process that has imported
them, they share that memory until one writes to it (copy-on-write, as Android's zygote does); and nothing has to be imported again.
What is forked differs from what ``python -m MODULE`` would be by nothing but that: ``attributes`` and ``become`` see to it, and
what they cannot make so is refused. Then, and whenever there is no server, the module is executed, which is always right.

There is one server for each user, installation and set of what a fork cannot change (``rendezvous``). It reads nothing of what it
is asked: it forks for each connection, and the child reads. So nothing of one service is in the memory of another's process.
"""
