"""PyMySQL: types, transactions, errors, cursor classes, a connection that stays open."""

import datetime
import gc
import weakref
from decimal import Decimal

import pymysql

TABLE = """
    create temporary table things (id int auto_increment primary key, name varchar(20) unique, price decimal(8,2),
        at datetime(6), day date, took time, raw varbinary(10), ok bool, ratio double, doc json, part enum('a','b'))
"""


def main(address, keep):
    given = {
        "host": "127.0.0.1",
        "port": int(address),
        "user": "root",
        "password": "a-password-of-mine",
        "database": "mysql",
    }
    fresh = pymysql.connect(**given)
    opened = keep.setdefault("open", None) or pymysql.connect(**given, autocommit=True)
    keep["open"] = opened
    opened.ping()
    with opened.cursor() as cursor:
        yield cursor.execute("select %s + 1", (41,)), cursor.fetchone(), opened.get_autocommit()
    yield from on(fresh)
    fresh.close()
    yield fresh.open
    try:
        fresh.ping(reconnect=False)
    except pymysql.err.Error as error:
        yield error


def is_freed_at_once(connection):
    """A cursor that nobody holds any more is gone without the garbage collector."""
    gc.disable()
    cursor = connection.cursor()
    cursor.execute("select 1")
    cursor.fetchall()
    gone = weakref.ref(cursor)
    del cursor
    gc.enable()
    return gone() is None


def on(connection):
    yield is_freed_at_once(connection)
    yield (
        isinstance(connection, pymysql.connections.Connection),
        connection.get_server_info(),
        connection.get_autocommit(),
    )
    cursor = connection.cursor()
    yield cursor.execute(TABLE), cursor.description
    at = datetime.datetime(2024, 2, 29, 12, 30, 0, 5)
    values = (
        "a",
        Decimal("1.50"),
        at,
        at.date(),
        datetime.timedelta(hours=2),
        b"\x00\xff",
        True,
        0.1,
        '{"a": 1}',
        "b",
    )
    cursor.execute(f"insert into things values (default, {', '.join(['%s'] * 10)})", values)
    yield cursor.rowcount, cursor.lastrowid, connection.insert_id()
    yield (
        cursor.executemany("insert into things (name) values (%s)", [(name,) for name in "bcd"]),
        cursor.rowcount,
    )
    cursor.execute("select * from things where id = %(id)s", {"id": 1})
    yield cursor.description, cursor.rownumber
    yield cursor.fetchone(), cursor.fetchone()
    cursor.execute("select id, name from things order by id")
    yield cursor.fetchone(), cursor.fetchmany(2), list(cursor)
    with connection.cursor(pymysql.cursors.DictCursor) as special:
        special.execute("select id, name from things order by id")
        yield special.fetchall()
    try:
        cursor.execute("insert into things (name) values ('a')")
    except pymysql.err.IntegrityError as error:
        yield error
    connection.rollback()
    connection.begin()
    cursor.execute("select count(*) from things")
    yield cursor.fetchall(), connection.server_status
    connection.commit()
    connection.autocommit(True)
    yield connection.get_autocommit()
    try:
        cursor.execute("select * from nowhere")
    except pymysql.err.ProgrammingError as error:
        yield error
    cursor.execute("select repeat('x', 1000) from seq_1_to_200")
    yield cursor.fetchall()
    cursor.close()
