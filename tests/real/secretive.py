"""The service of ``services/secretive.py`` in a capsule, sent and given all that is planted in it."""

from __future__ import annotations

import base64
import gzip
import http.client
import http.server
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from support.ports import free_port
from support.servers import redis_server
from support.waiting import LIMIT, eventually

from .harness import PYTHON, SERVICES, Capsule, Relive

sys.path.insert(0, str(SERVICES))
from planted import CODE_PATTERN, CONTROLS, SECRETS

sys.path.remove(str(SERVICES))

__all__ = ["CONTROLS", "SECRETS", "Secretive", "secretive"]

_NAMES = ["internalcode", "x-door-code"]
_SETTINGS = {
    "RELIVE_SECRET_NAMES": json.dumps(_NAMES),
    "RELIVE_SECRET_PATTERNS": json.dumps([CODE_PATTERN]),
}
_SHAPES = {name: value for name, value in SECRETS.items() if name.startswith("shape-")}


class _Upstream(http.server.BaseHTTPRequestHandler):
    """What the service asks: it answers with a token and a cookie."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps({"access_token": SECRETS["out-token"], "for": 3600}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Set-Cookie", f"upstream={SECRETS['out-cookie']}; Path=/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@dataclass
class Secretive:
    """The service, and how it is asked."""

    relive: Relive
    capsule: Capsule
    port: int
    redis_port: int
    upstream: int

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        try:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body or None, sent)
            answer = connection.getresponse()
            answer.read()
            return answer.status
        finally:
            connection.close()

    def heads(self) -> int:
        """Secrets in query and headers."""
        basic = base64.b64encode(f"ada:{SECRETS['header-basic']}".encode()).decode()
        return self.ask(
            "GET",
            f"/head?page=2&token={SECRETS['query-token']}&internalcode={SECRETS['query-configured']}",
            Authorization=f"Bearer {SECRETS['header-bearer']}",
            Proxy_Authorization=f"Basic {basic}",
            Cookie=f"theme=dark; sid={SECRETS['header-cookie']}",
            X_Api_Key=SECRETS["header-key"],
            X_Door_Code=SECRETS["header-configured"],
        )

    def bodies(self) -> list[int]:
        """Secrets in bodies of each kind."""
        told = {
            **CONTROLS,
            "user": {"password": SECRETS["json-password"], "app": {"client_secret": SECRETS["json-nested"]}},
            "payment": f"paid with {SECRETS['card']}",
            "notes": list(_SHAPES.values()),
        }
        packed = {"password": SECRETS["gzip-password"], "note": f"code {SECRETS['gzip-pattern']} of the door"}
        parts = (
            '--cut\r\nContent-Disposition: form-data; name="user"\r\n\r\nada\r\n'
            '--cut\r\nContent-Disposition: form-data; name="passwd"\r\n\r\n'
            f"{SECRETS['multipart-field']}\r\n--cut--\r\n"
        )
        form = f"user=ada&password={SECRETS['form-password']}"
        kinds = {
            "json": (json.dumps(told).encode(), "application/json", {}),
            "form": (form.encode(), "application/x-www-form-urlencoded", {}),
            "multipart": (parts.encode(), "multipart/form-data; boundary=cut", {}),
            "gzip": (
                gzip.compress(json.dumps(packed).encode()),
                "application/json",
                {"Content_Encoding": "gzip"},
            ),
        }
        return [
            self.ask("POST", f"/body/{kind}", body, Content_Type=content_type, **more)
            for kind, (body, content_type, more) in kinds.items()
        ]

    def within(self) -> int:
        """Secrets of what the service asks, logs and holds."""
        return self.ask("GET", f"/within?redis_port={self.redis_port}&upstream={self.upstream}")


@contextmanager
def secretive(relive: Relive, directory: Path) -> Iterator[Secretive]:
    """Start it below Relive, with a Redis and an upstream that know secrets too."""
    with redis_server() as url, _upstream() as upstream:
        store = redis.Redis.from_url(url)
        store.set("user:1:password", SECRETS["redis-key"])
        store.hset("user:1", "token", SECRETS["redis-field"])
        store.hset("user:2", mapping={"name": "ada", "secret": SECRETS["redis-hash"]})
        store.close()
        (directory / "shop.ini").write_text(f"[mail]\nhost=mail.example\npassword={SECRETS['file']}\n")
        relive.environment.update(_SETTINGS)
        told = {"secret_names": _NAMES, "secret_patterns": [CODE_PATTERN]}
        relive.settings = relive.settings.model_copy(update=told)
        yield _started(relive, directory, int(url.rpartition(":")[2]), upstream)


def _started(relive: Relive, directory: Path, redis_port: int, upstream: int) -> Secretive:
    port, own = free_port(), free_port()
    command = [
        *(str(PYTHON), str(SERVICES / "secretive.py"), "--port", str(own)),
        *("--db-password", SECRETS["command-two-words"], f"--api-token={SECRETS['command-equals']}"),
        *("--internalcode", SECRETS["command-configured"]),
        *("--broker", f"amqp://ada:{SECRETS['command-url']}@127.0.0.1/"),
    ]
    environment = {
        "API_KEY": SECRETS["environment-api-key"],
        "PGPW": SECRETS["environment-pgpw"],
        "DB_PASS": SECRETS["environment-pass"],
        "SMTP_PASSWD": SECRETS["environment-passwd"],
        "INTERNALCODE": SECRETS["environment-configured"],
        "DATABASE_URL": f"postgresql://ada:{SECRETS['environment-url']}@127.0.0.1/shop",
        "AWS_SECRET_ACCESS_KEY": SECRETS["environment-aws"],
        "NOTE": f"see {SECRETS['environment-shape']}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PWD": str(directory),
    }
    listen = ("--listen", f"127.0.0.1:{port}", "--upstream", str(own))
    words = ("run", "--detach", "--name", "secretive", "--every", "never", *listen, "--", *command)
    answer = _in_directory(relive, directory, words, environment)
    made = Secretive(
        relive, Capsule(answer["name"], answer["life"], answer["pid"]), port, redis_port, upstream
    )
    eventually(lambda: made.ask("GET", "/answer") == 200, "the service answers")
    return made


def _in_directory(
    relive: Relive, directory: Path, words: tuple[str, ...], environment: dict[str, str]
) -> dict:
    import subprocess

    from .harness import RELIVE

    done = subprocess.run(
        [RELIVE, words[0], "--json", *words[1:]],
        cwd=directory,
        env={**relive.environment, **environment},
        stdout=subprocess.PIPE,
        timeout=LIMIT,
        check=True,
    )
    return json.loads(done.stdout)


@contextmanager
def _upstream() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
