"""Who a service asked, and nobody recorded: what every replay of it will lack."""

from __future__ import annotations

import ipaddress

from relive.model.value import Value

__all__ = ["Dependency", "address_of", "service_at"]

_KNOWN_PORTS = {
    1433: "SQL Server", 1521: "Oracle", 3306: "MySQL", 5432: "PostgreSQL", 5672: "RabbitMQ", 6379: "Redis",
    9042: "Cassandra", 9092: "Kafka", 11211: "memcached", 27017: "MongoDB", 443: "HTTPS", 80: "HTTP",
}  # fmt: skip


class Dependency(Value):
    """A server to which the service had a connection that was not recorded.

    Attributes:
        to: ADDRESS:PORT, or the path of a UNIX domain socket; service: what is known to listen there by custom, or empty.
    """

    to: str
    service: str = ""

    @property
    def words(self) -> str:
        """``127.0.0.1:6379 (Redis)``."""
        return f"{self.to} ({self.service})" if self.service else self.to


def service_at(port: int) -> str:
    """The name of what listens at a port by custom; empty for any other."""
    return _KNOWN_PORTS.get(port, "")


def address_of(peer: tuple[str, int]) -> str:
    """``127.0.0.1:80`` or ``[::1]:80``."""
    address, port = peer
    return f"[{address}]:{port}" if ipaddress.ip_address(address).version == 6 else f"{address}:{port}"
