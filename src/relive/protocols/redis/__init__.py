"""Redis (RESP2 and RESP3): calls read from a dialogue, and a server that answers as the recorded one did."""

from relive.protocols.redis.protocol import OnMiss, Redis

__all__ = ["OnMiss", "Redis"]
