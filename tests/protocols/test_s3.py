"""S3: boto3 and obstore talk to a real server through a recording pipe, and once more to nobody but the recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import obstore
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from obstore.store import S3Store

from protocols.answering import answering, bytes_of
from protocols.continuing import assert_it_continues_everywhere
from protocols.recording import recording
from protocols.scripted import dialogue
from relive.protocols.call import Call
from relive.protocols.http import S3, Http
from relive.protocols.pool import Pool, PoolMatch
from relive.recording.dialogues import Way
from relive.recording.events import EventKind
from remotes.s3_server import BUCKET, Swift

PROTOCOL = S3()
PART = b"p" * (5 << 20)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture(scope="module")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swift]:
    with Swift.running(tmp_path_factory.mktemp("swift")) as server:
        yield server


def of_boto3(port: int) -> Any:
    config = Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1})
    s3 = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        aws_access_key_id="test:tester",
        aws_secret_access_key="testing",
        region_name="us-east-1",
        config=config,
    )
    try:
        place = {"Bucket": BUCKET, "Key": "dir/parts.bin"}
        found: list[Any] = [s3.put_object(Bucket=BUCKET, Key="dir/a.txt", Body=b"0123456789")["ETag"]]
        upload = s3.create_multipart_upload(**place)["UploadId"]
        tags = []
        for number, data in enumerate((PART, b"the end"), 1):
            tag = s3.upload_part(**place, UploadId=upload, PartNumber=number, Body=data)["ETag"]
            tags.append({"ETag": tag, "PartNumber": number})
        found.append(
            s3.complete_multipart_upload(**place, UploadId=upload, MultipartUpload={"Parts": tags})["ETag"]
        )
        middle = s3.get_object(**place, Range=f"bytes={len(PART) - 2}-{len(PART) + 2}")
        found.append((middle["ContentRange"], middle["Body"].read()))
        found.append(s3.get_object(**place)["Body"].read() == PART + b"the end")
        found.append([one["Key"] for one in s3.list_objects_v2(Bucket=BUCKET, Prefix="dir/")["Contents"]])
        with pytest.raises(ClientError) as caught:
            s3.get_object(Bucket=BUCKET, Key="none")
        found.append(caught.value.response["Error"]["Code"])
        found.append(s3.delete_object(Bucket=BUCKET, Key="dir/a.txt")["ResponseMetadata"]["HTTPStatusCode"])
        return found
    finally:
        s3.close()


def of_obstore(port: int) -> Any:
    store = S3Store(
        BUCKET,
        endpoint=f"http://127.0.0.1:{port}",
        access_key_id="test:tester",
        secret_access_key="testing",
        region="us-east-1",
        client_options={"allow_http": True},
        virtual_hosted_style_request=False,
    )
    found: list[Any] = [obstore.put(store, "o/a", b"abcdef", use_multipart=False)["e_tag"]]
    found.append(bytes(obstore.get_range(store, "o/a", start=1, end=4)))
    found.append(bytes(obstore.get(store, "o/a").bytes()))
    found.append([one["path"] for page in obstore.list(store, "o") for one in page])
    obstore.delete(store, "o/a")
    return found


@pytest.mark.parametrize("program", [of_boto3, of_obstore])
def test_a_client_gets_from_the_recording_what_it_got_from_the_server(swift, program: Callable[[int], Any]):
    server = ("127.0.0.1", swift.port)
    with recording(server) as pipe:
        first = program(pipe.port)
    dialogues = pipe.dialogues
    calls = sorted(
        (call for one in dialogues for call in PROTOCOL.calls(one)), key=lambda call: call.asked_mono_ns
    )
    assert {call.kind for call in calls} == {EventKind.S3_CALL}
    assert all(PROTOCOL.recognises(one) for one in dialogues if one.pieces)
    found: list[PoolMatch] = []
    pool = Pool(calls, on_found=found.append)
    with answering(PROTOCOL, pool, to=server, port=pipe.port, speed=100) as port:
        second = program(port)
    assert second == first
    assert [one.asked for one in found if one.is_miss] == []
    assert pool.left() == []


def asking(path: bytes, *headers: bytes, method: bytes = b"GET") -> bytes:
    return b"\r\n".join([method + b" " + path + b" HTTP/1.1", b"Host: s3.amazonaws.com", *headers, b"", b""])


def calls_of(*requests: bytes) -> list[Call]:
    pieces = [piece for one in requests for piece in ((Way.UP, one), (Way.DOWN, OK))]
    return PROTOCOL.calls(dialogue(pieces))


def test_the_same_words_as_the_recorder_in_python_processes_uses():
    (call,) = calls_of(asking(b"/box/dir/key", b"Authorization: AWS4-HMAC-SHA256 abc", b"Range: bytes=0-3"))
    assert call.kind is EventKind.S3_CALL
    assert call.asked == {
        "operation": "GetObject",
        "bucket": "box",
        "key": "dir/key",
        "range": "bytes=0-3",
        "method": "GET",
        "url": "http://s3.amazonaws.com/box/dir/key",
        "headers": {"range": "bytes=0-3"},
        "body": "",
    }
    assert "abc" not in str(call.extra["volatile"])


def test_a_signature_of_another_second_is_the_same_question():
    signed = b"/box/key?X-Amz-Date=2026%s&X-Amz-Credential=me/2026%s&X-Amz-Expires=60&X-Amz-Signature=%s"
    session = PROTOCOL.open(Pool(calls_of(asking(signed % (b"1", b"1", b"aa")))), 1)
    assert bytes_of(session.feed(asking(signed % (b"2", b"2", b"bb")))) == OK


def test_signatures_of_single_chunks_are_not_compared():
    def upload(signature: bytes) -> bytes:
        body = b"2;chunk-signature=%b\r\nhi\r\n0;chunk-signature=%b\r\n\r\n" % (
            signature * 64,
            signature * 64,
        )
        headers = (
            b"Content-Encoding: aws-chunked",
            b"x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        )
        return asking(b"/box/key", *headers, b"Content-Length: %d" % len(body), method=b"PUT") + body

    session = PROTOCOL.open(Pool(calls_of(upload(b"a"))), 1)
    assert bytes_of(session.feed(upload(b"b"))) == OK


def test_another_range_is_another_question():
    session = PROTOCOL.open(Pool(calls_of(asking(b"/box/key", b"Range: bytes=0-3"))), 1)
    answer = bytes_of(session.feed(asking(b"/box/key", b"Range: bytes=4-7")))
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/xml\r\n")
    assert b"<Code>ReliveMiss</Code>" in answer
    assert b"differs in header:range" in answer


def test_it_continues_at_every_byte():
    pieces = [
        (Way.UP, asking(b"/box/key")),
        (Way.DOWN, OK[:9]),
        (Way.DOWN, OK[9:]),
        (Way.UP, asking(b"/box")),
    ]
    assert_it_continues_everywhere(PROTOCOL, dialogue([*pieces, (Way.DOWN, OK)]))


def test_other_http_is_not_s3():
    plain = dialogue([(Way.UP, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"), (Way.DOWN, OK)])
    assert not PROTOCOL.recognises(plain)
    assert Http().recognises(plain)
