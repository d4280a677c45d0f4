"""What a failure is caused by, proved: one thing of the recording is changed, and the failure goes away or stays.

Decided by pure functions over recordings (what can be changed, what differs from a request that went well, which changes are
needed, what runs prove); ``living`` runs the replays.
"""
