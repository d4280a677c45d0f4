"""OpenStack Swift with its S3 interface, its four servers in one process: ``python swift_server.py DIRECTORY BUCKET``.

Makes the bucket, prints the port of the S3 endpoint when it listens there, and ends when its standard input does.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")  # eventlet says of itself that it is deprecated
import eventlet  # noqa: E402

eventlet.monkey_patch()  # before anything else is imported

import logging  # noqa: E402

import swift.common.utils.config  # noqa: E402

SWIFT_CONF = "[swift-hash]\nswift_hash_path_suffix = test\nswift_hash_path_prefix = test\n"
PROXY = """
[DEFAULT]
swift_dir = {directory}
log_address = {directory}/no-log
[pipeline:main]
pipeline = catch_errors cache s3api tempauth slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1
[filter:s3api]
use = egg:swift#s3api
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
"""
BACKEND = """
[DEFAULT]
devices = {directory}/devices
mount_check = false
swift_dir = {directory}
log_address = {directory}/no-log
fallocate_reserve = 0
disable_fallocate = true
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""
BACKENDS = ("account", "container", "object")


def write_ring(directory: Path, kind: str, port: int) -> None:
    from swift.common.ring import RingBuilder

    builder = RingBuilder(1, 1, 1)
    address = {"ip": "127.0.0.1", "port": port, "replication_ip": "127.0.0.1", "replication_port": port}
    builder.add_dev({"id": 0, "region": 1, "zone": 1, "device": "d1", "weight": 1.0, "meta": "", **address})
    builder.rebalance()
    builder.get_ring().save(f"{directory}/{kind}.ring.gz")


def serve(directory: Path, kind: str, text: str, listener: eventlet.greenio.GreenSocket) -> None:
    from swift.common.http_protocol import SwiftHttpProtocol
    from swift.common.wsgi import loadapp

    conf = directory / f"{kind}.conf"
    conf.write_text(text.format(directory=directory, kind=kind))
    quiet = logging.getLogger("quiet")
    quiet.setLevel(logging.CRITICAL)
    app = loadapp(str(conf), global_conf={"log_name": kind})
    eventlet.spawn(
        eventlet.wsgi.server, listener, app, log=quiet, log_output=False, protocol=SwiftHttpProtocol
    )


def make_bucket(directory: Path, name: str) -> None:
    """Without the guards that stand before the proxy server."""
    from swift.common.swob import Request
    from swift.common.wsgi import loadapp

    conf = directory / "unguarded.conf"
    guarded = "catch_errors cache s3api tempauth slo dlo proxy-server"
    conf.write_text(PROXY.replace(guarded, "cache proxy-server").format(directory=directory))
    app = loadapp(str(conf), global_conf={"log_name": "unguarded"})
    status = Request.blank(f"/v1/AUTH_test/{name}", method="PUT").get_response(app).status_int
    assert status in (201, 202), status


def main(directory: Path, bucket: str) -> None:
    import eventlet.wsgi

    (directory / "devices" / "d1").mkdir(parents=True)
    (directory / "swift.conf").write_text(SWIFT_CONF)
    for module in (swift.common.utils, swift.common.utils.config):
        module.SWIFT_CONF_FILE = str(directory / "swift.conf")
    listeners = {kind: eventlet.listen(("127.0.0.1", 0)) for kind in (*BACKENDS, "proxy")}
    for kind in BACKENDS:
        write_ring(directory, kind, listeners[kind].getsockname()[1])
    for kind in BACKENDS:
        serve(directory, kind, BACKEND, listeners[kind])
    serve(directory, "proxy", PROXY, listeners["proxy"])
    make_bucket(directory, bucket)
    print(listeners["proxy"].getsockname()[1], flush=True)
    eventlet.tpool.execute(sys.stdin.read)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
