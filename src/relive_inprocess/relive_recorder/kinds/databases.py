"""Which library is changed by which file, when it is imported. The files are loaded only then: start-up time counts."""

from importlib import import_module
from typing import Any, Callable

from relive_recorder.imports import when_imported

__all__ = ["install_queries", "install_redis"]

_QUERIES = (
    ("asyncpg.protocol", "asyncpg", "change_protocol"),
    ("asyncpg.connection", "asyncpg", "change_connection"),
    ("asyncpg.connect_utils", "asyncpg", "change_connecting"),
    ("psycopg2.extensions", "psycopg2", "change_extensions"),
    ("psycopg2", "psycopg2", "change"),
    ("psycopg", "psycopg3", "change"),
    ("pymysql.cursors", "pymysql", "change_cursors"),
    ("pymysql.connections", "pymysql", "change_connections"),
    ("sqlite3.dbapi2", "sqlite", "change"),
    ("aiosqlite.core", "sqlite", "change_aiosqlite"),
)
_REDIS = (
    ("redis.client", "redis", "change"),
    ("redis.asyncio.client", "redis", "change_async"),
)


def install_queries() -> None:
    """Record queries (kind ``query``)."""
    for library, file, change in _QUERIES:
        when_imported(library, _changing(file, change))


def install_redis() -> None:
    """Record Redis commands (kind ``redis-command``)."""
    for library, file, change in _REDIS:
        when_imported(library, _changing(file, change))


def _changing(file: str, change: str) -> Callable[[Any], None]:
    def changed(module: Any) -> None:
        getattr(import_module(f"relive_recorder.kinds.{file}"), change)(module)

    return changed
