"""Downloads from a real server: signed, in parts, gone on with by curl."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from relive.server import audit_middleware
from relive.server.export_shelf import new_export_id
from server.serving import served
from support.waiting import eventually

CONTENT = os.urandom(1_000_003)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("home") / "server") as running:
        yield running


@pytest.fixture(scope="module")
def kept(server):
    return keep(server, CONTENT)


def keep(server, content, *, length=None):
    def write(path):
        path.write_bytes(content)
        if length is not None:
            os.truncate(path, length)

    return server.export_store.store_export(
        new_export_id(), write, name="pay.relive", lifetime=600, asked_by="ci"
    )


@pytest.fixture
def url(server, kept):
    return server.url + server.links.issue(kept.id, lifetime=60, asked_by="ci")[1]


@pytest.fixture(scope="module")
def client():
    with httpx.Client() as made:
        yield made


def refused(answer, status=403, code="url-refused"):
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    assert CONTENT[:20] not in answer.content


def test_the_whole_file_comes_with_what_a_client_needs(client, url, kept):
    answer = client.get(url)
    assert (answer.status_code, answer.content) == (200, CONTENT)
    assert answer.headers["content-length"] == str(len(CONTENT))
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["etag"] == kept.etag
    assert answer.headers["content-disposition"] == 'attachment; filename="pay.relive"'
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "no-store" in answer.headers["cache-control"]
    assert answer.headers["referrer-policy"] == "no-referrer"


def test_head_tells_the_same_without_the_file(client, url):
    head, whole = client.head(url, headers={"Range": "bytes=5-"}), client.get(url)
    assert (head.status_code, head.content) == (200, b"")
    differ = {"date"}
    assert {k: v for k, v in head.headers.items() if k not in differ} == {
        k: v for k, v in whole.headers.items() if k not in differ
    }


@pytest.mark.parametrize(
    ("asked", "begin", "end"),
    [
        ("0-0", 0, 1),
        ("10-99", 10, 100),
        ("999990-", 999_990, 1_000_003),
        ("-7", 999_996, 1_000_003),
        ("300000-", 300_000, 1_000_003),
    ],
)
def test_a_part_is_given(client, url, asked, begin, end):
    answer = client.get(url, headers={"Range": f"bytes={asked}"})
    assert (answer.status_code, answer.content) == (206, CONTENT[begin:end])
    assert answer.headers["content-range"] == f"bytes {begin}-{end - 1}/{len(CONTENT)}"
    assert answer.headers["content-length"] == str(end - begin)


def test_several_ranges_are_the_whole_file(client, url):
    answer = client.get(url, headers={"Range": "bytes=0-1,5-6"})
    assert (answer.status_code, answer.content) == (200, CONTENT)


def test_a_range_behind_the_end_tells_how_long_the_file_is(client, url):
    answer = client.get(url, headers={"Range": f"bytes={len(CONTENT)}-"})
    refused(answer, 416, "range-unsatisfiable")
    assert answer.headers["content-range"] == f"bytes */{len(CONTENT)}"


def test_a_download_of_another_state_begins_again(client, url, kept):
    same = client.get(url, headers={"Range": "bytes=5-", "If-Range": kept.etag})
    other = client.get(url, headers={"Range": "bytes=5-", "If-Range": '"other"'})
    assert (same.status_code, same.content) == (206, CONTENT[5:])
    assert (other.status_code, other.content) == (200, CONTENT)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl_goes_on_where_it_ended(url, tmp_path):
    (tmp_path / "file").write_bytes(CONTENT[:400_000])
    said = subprocess.run(
        ["curl", "-sS", "-f", "-C", "-", "-o", tmp_path / "file", "-w", "%{http_code} %{size_download}", url],
        check=True,
        capture_output=True,
        text=True,
    )
    assert said.stdout == "206 600003"
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_an_empty_file_is_given(server, client):
    empty = keep(server, b"")
    url = server.url + server.links.issue(empty.id, lifetime=60, asked_by="ci")[1]
    answer = client.get(url)
    assert (answer.status_code, answer.content) == (200, b"")


def test_without_a_signature_nothing_comes(server, client, kept, url):
    path = f"{server.url}/exports/{kept.id}/file"
    refused(client.get(path))
    refused(client.get(f"{path}?"))
    refused(client.get(f"{path}?signature="))
    assert client.head(path).status_code == 403


def test_another_export_is_not_opened(server, client, kept, url):
    other = keep(server, b"secret")
    refused(client.get(url.replace(kept.id, other.id)))


def test_a_revoked_and_an_expired_address_are_refused(server, client, kept):
    link, path = server.links.issue(kept.id, lifetime=60, asked_by="ci")
    assert client.head(server.url + path).status_code == 200
    server.links.revoke(link.link)
    refused(client.get(server.url + path))
    then = server.links._clock
    try:
        server.links._clock = lambda: then() - 100
        _, path = server.links.issue(kept.id, lifetime=60, asked_by="ci")
    finally:
        server.links._clock = then
    refused(client.get(server.url + path))


@pytest.mark.parametrize(
    "path",
    ["../../token.key", "..%2F..%2Ftoken.key", "%2e%2e/token.key", "/etc/passwd", "%00", ".", "a" * 300],
)
def test_no_path_leads_out(server, client, url, path):
    query = url.partition("?")[2]
    for one in (path, quote(path, safe="")):
        answer = client.get(f"{server.url}/exports/{one}/file?{query}")
        assert answer.status_code in (403, 404)
        assert set(answer.json()["error"]) == {"code", "message", "cause", "remedy"}


def test_an_export_that_is_gone_is_told(server, client):
    gone = keep(server, b"abc")
    url = server.url + server.links.issue(gone.id, lifetime=60, asked_by="ci")[1]
    server.export_store.delete(gone.id)
    refused(client.get(url), 404, "kept-export-unknown")
    assert client.head(url).status_code == 404


def open_exports():
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.append(str(one.readlink()))
    return [name for name in found if name.endswith(".export")]


def test_a_client_that_goes_away_leaves_nothing_open(server, client):
    """Of a file (all of it a hole) that no buffers on the way can hold."""
    long = keep(server, b"", length=8 << 30)
    url = server.url + server.links.issue(long.id, lifetime=60, asked_by="ci")[1]
    with client.stream("GET", url) as answer:
        parts = answer.iter_raw()  # kept: when it is forgotten, httpx closes the connection
        next(parts)
        assert open_exports()
    eventually(lambda: not open_exports(), "the file is closed")


def test_a_download_is_in_the_audit_log_without_its_signature(server, client, kept):
    link, path = server.links.issue(kept.id, lifetime=60, asked_by="ci")
    client.get(server.url + path)
    entry = server.audit.page(limit=1).entries[0]
    assert entry.who == f"signed address {link.link} of ci"
    assert (entry.target, entry.outcome, entry.status) == (kept.id, "done", 200)
    assert path.rpartition("=")[2] not in entry.model_dump_json()


def test_nobody_pushes_the_audit_log_out_by_downloading(server, client, kept, monkeypatch):
    monkeypatch.setattr(audit_middleware, "_ANYBODYS", (1e-9, 20))
    _, path = server.links.issue(kept.id, lifetime=60, asked_by="ci")
    before = server.audit.verify().last
    for _ in range(40):
        assert client.head(server.url + path).status_code == 200
    assert server.audit.verify().last - before == 20
