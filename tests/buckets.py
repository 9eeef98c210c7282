"""Buckets to test with: moto's server, a process of its own that is spoken to over HTTP."""

from __future__ import annotations

import contextlib
import functools
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import boto3

_HOST = "127.0.0.1"
_PATIENCE_SECONDS = 60
# Whoever asks moto is let in; only that requests are signed matters.
_KEYS = {"aws_access_key_id": "anybody", "aws_secret_access_key": "anything"}
REGION = "eu-central-1"


@dataclass(frozen=True)
class Bucket:
    """One bucket; what names in it begin with stands for the other things in a real one."""

    endpoint: str
    name: str
    prefix: str = "originals/of ours"

    def options(self) -> dict[str, Any]:
        return {
            "bucket_name": self.name,
            "endpoint_url": self.endpoint,
            "region_name": REGION,
            "location": self.prefix,
        }

    def environment(self) -> dict[str, str]:
        """What a process of its own is configured with."""
        return {
            "ARTIFACT_STORAGE": "s3",
            "ARTIFACT_S3_BUCKET": self.name,
            "ARTIFACT_S3_ENDPOINT": self.endpoint,
            "ARTIFACT_S3_REGION": REGION,
            "ARTIFACT_S3_PREFIX": self.prefix,
            "AWS_ACCESS_KEY_ID": _KEYS["aws_access_key_id"],
            "AWS_SECRET_ACCESS_KEY": _KEYS["aws_secret_access_key"],
        }

    @property
    def client(self) -> Any:
        return _client(self.endpoint)

    def keys(self) -> dict[str, bytes]:
        """Everything that is in it."""
        entries = self.client.list_objects_v2(Bucket=self.name).get("Contents", ())
        return {entry["Key"]: self.read(entry["Key"]) for entry in entries}

    def read(self, key: str) -> bytes:
        content: bytes = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return content

    def write(self, key: str, content: bytes) -> None:
        """Past the store: as damage does, or another program."""
        self.client.put_object(Bucket=self.name, Key=key, Body=content)

    def begin(self, key: str) -> datetime:
        """A write that never ends: the first part of it, and when it began."""
        named = {"Bucket": self.name, "Key": key}
        upload = self.client.create_multipart_upload(**named)["UploadId"]
        self.client.upload_part(**named, UploadId=upload, PartNumber=1, Body=b"half")
        return datetime.now().astimezone()

    def unfinished(self) -> list[str]:
        uploads = self.client.list_multipart_uploads(Bucket=self.name).get("Uploads", ())
        return [upload["Key"] for upload in uploads]


@dataclass(frozen=True)
class Store:
    """A process with buckets."""

    endpoint: str
    process: subprocess.Popen[bytes]

    @classmethod
    @contextlib.contextmanager
    def running(cls) -> Iterator[Store]:
        port = _free_port()
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", _HOST, "-p", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
            try:
                _wait(process, port)
                yield cls(f"http://{_HOST}:{port}", process)
            finally:
                process.kill()
                process.wait()

    def make_bucket(self) -> Bucket:
        bucket = Bucket(self.endpoint, f"originals-{uuid.uuid4().hex}")
        bucket.client.create_bucket(
            Bucket=bucket.name, CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        # What is not ours in it: no listing may show it, and no sweep may touch it.
        bucket.write("of another program", b"theirs")
        return bucket


@functools.lru_cache
def _client(endpoint: str) -> Any:
    session = boto3.Session(**_KEYS, region_name=REGION)
    return session.client("s3", endpoint_url=endpoint)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    ends = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((_HOST, port), timeout=1):
            return
        time.sleep(0.1)
    raise RuntimeError("moto's server did not start")
