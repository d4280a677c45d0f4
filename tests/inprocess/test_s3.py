"""Calls of the S3 protocol are told as such: by boto3 and by plain requests, on a real server."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from remotes.s3_server import BUCKET, Swift

from .conftest import INPROCESS

sys.path.insert(0, str(INPROCESS))
from relive_recorder.kinds.s3 import operation_of

sys.path.remove(str(INPROCESS))

HERE = Path(__file__).parent
SIGNED = {"x-amz-content-sha256": "0"}
PROGRAM = """
import os, sys
sys.path.insert(0, {here!r})
import boto3, requests
from botocore.config import Config
from twice import Twice

style = Config(s3={{"addressing_style": "path"}}, retries={{"max_attempts": 1}}, request_checksum_calculation="when_required")
s3 = boto3.client("s3", endpoint_url={url!r}, aws_access_key_id="test:tester", aws_secret_access_key="testing",
                  region_name="us-east-1", config=style)

def part():
    answer = s3.get_object(Bucket={bucket!r}, Key="a/b.txt", Range="bytes=0-3")
    return answer["ContentRange"], answer["Body"].read()

def missing():
    s3.get_object(Bucket={bucket!r}, Key="none")

# Once: it holds the time until which it is good, and the clock is not played here.
signed = s3.generate_presigned_url("get_object", Params={{"Bucket": {bucket!r}, "Key": "a/b.txt"}})

def presigned():
    return requests.get(signed, timeout=60).text

def listed():
    return [item["Key"] for item in s3.list_objects_v2(Bucket={bucket!r})["Contents"]]

Twice(("http-call", "s3-call")).run([
    ("put", lambda: s3.put_object(Bucket={bucket!r}, Key="a/b.txt", Body=b"hello there")["ETag"]),
    ("part", part), ("presigned", presigned), ("list", listed), ("missing", missing),
    ("head", lambda: s3.head_object(Bucket={bucket!r}, Key="a/b.txt")["ContentLength"]),
    ("delete", lambda: s3.delete_object(Bucket={bucket!r}, Key="a/b.txt")["ResponseMetadata"]["HTTPStatusCode"]),
], lambda: s3.close())
"""


@pytest.fixture(scope="module")
def swift(tmp_path_factory):
    with Swift.running(tmp_path_factory.mktemp("swift")) as server:
        yield server


def test_boto3_on_a_real_server(run_recorded, swift):
    url = f"http://127.0.0.1:{swift.port}"
    ran = run_recorded(PROGRAM.format(here=str(HERE), url=url, bucket=BUCKET))
    assert (ran.status, ran.err) == (0, "")
    told = {name: rest for name, *rest in json.loads(ran.out)}
    for name, (before, after, recorded, played, unasked) in told.items():
        assert after == before, name
        assert played == recorded, name
        assert [event[0] for event in recorded] == ["s3-call"], name
        assert unasked == 0, name
    asked = {name: rest[2][0][1]["asked"] for name, rest in told.items()}
    assert {name: one["operation"] for name, one in asked.items()} == {
        "put": "PutObject",
        "part": "GetObject",
        "presigned": "GetObject",
        "list": "ListObjectsV2",
        "missing": "GetObject",
        "head": "HeadObject",
        "delete": "DeleteObject",
    }
    assert (asked["put"]["bucket"], asked["put"]["key"], asked["put"]["body"]) == (
        BUCKET,
        "a/b.txt",
        "hello there",
    )
    assert asked["part"]["range"] == "bytes=0-3"
    assert "key" not in asked["list"]


@pytest.mark.parametrize(
    ("method", "url", "headers", "expected"),
    [
        ("GET", "https://b.s3.eu-west-1.amazonaws.com/k/x", {}, ("GetObject", "b", "k/x")),
        ("GET", "https://s3.amazonaws.com/b/k", {}, ("GetObject", "b", "k")),
        ("GET", "http://minio:9000/b/k%20x?X-Amz-Signature=1", {}, ("GetObject", "b", "k x")),
        ("PUT", "http://h/b/k?partNumber=1&uploadId=u", SIGNED, ("UploadPart", "b", "k")),
        ("POST", "http://h/b/k?uploads", SIGNED, ("CreateMultipartUpload", "b", "k")),
        ("POST", "http://h/b/k?uploadId=u", SIGNED, ("CompleteMultipartUpload", "b", "k")),
        ("POST", "http://h/b?delete", SIGNED, ("DeleteObjects", "b", None)),
        ("PUT", "http://h/b/k", {**SIGNED, "x-amz-copy-source": "b/o"}, ("CopyObject", "b", "k")),
        ("GET", "http://h/b?acl", SIGNED, ("GET bucket acl", "b", None)),
        ("GET", "http://h/", SIGNED, ("ListBuckets", None, None)),
    ],
)
def test_operations(method, url, headers, expected):
    told = operation_of(method, url, headers)
    assert told is not None
    assert (told["operation"], told.get("bucket"), told.get("key")) == expected


@pytest.mark.parametrize(
    "url", ["https://api.example.com/s3/file", "https://s3files.example.com/x", "http://h/b/k"]
)
def test_other_calls(url):
    assert operation_of("GET", url, {}) is None
