"""The storage of blobs: one contract, on the file system and in a bucket."""

from __future__ import annotations

import io
import random
import threading
import uuid
from datetime import timedelta
from typing import IO, Any, cast

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from artifacts.blobs import blob_store
from artifacts.errors import BlobDamaged, BlobMissing, StorageUnavailable, UploadTooLarge
from artifacts.s3 import S3BlobStore
from tests.buckets import Bucket
from tests.storages import Storage, nowhere, redirect

MIB = 1024**2
# More than one part of a bucket's writes and several windows of its reads, and no round number.
LONG = random.Random(7).randbytes(19 * MIB + 3)


class Forgetful(io.RawIOBase):
    """A stream that cannot be read twice, and that gives less than it is asked for."""

    def __init__(self, content: bytes, error: Exception | None = None) -> None:
        self._inner = io.BytesIO(content)
        self._error = error

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        block = self._inner.read(size)
        if not block and self._error:
            raise self._error
        return block


def forgetful(content: bytes, error: Exception | None = None) -> IO[bytes]:
    return cast("IO[bytes]", Forgetful(content, error))


class TestContract:
    @pytest.mark.parametrize("content", [b"", b"a", LONG], ids=["empty", "short", "long"])
    def test_what_is_put_is_read_again(self, storage: Storage, content: bytes) -> None:
        key = storage.blobs.put(forgetful(content))
        assert storage.read(key) == content
        with storage.blobs.open(key) as stream:
            assert stream.read() == content
            assert stream.read(1) == b""

    def test_what_is_put_is_read_by_the_thread_that_puts(self, storage: Storage) -> None:
        """It may come from a database session, which is a thread's own."""
        readers = set()

        class Watched(Forgetful):
            def read(self, size: int = -1, /) -> bytes:
                readers.add(threading.get_ident())
                return super().read(size)

        storage.blobs.put(cast("IO[bytes]", Watched(LONG)))
        assert readers == {threading.get_ident()}

    def test_any_part_is_read(self, storage: Storage) -> None:
        key = storage.blobs.put(io.BytesIO(LONG))
        chance = random.Random(3)
        with storage.blobs.open(key) as stream:
            for _ in range(12):
                start = chance.randrange(len(LONG))
                size = chance.choice((1, 1_000, 32 * 1024, 3 * MIB))
                assert stream.seek(start) == stream.tell() == start
                assert stream.read(size) == LONG[start : start + size]
            assert stream.seek(-10, io.SEEK_END) == len(LONG) - 10
            assert stream.read() == LONG[-10:]
            assert stream.seek(len(LONG) + 5) == len(LONG) + 5
            assert stream.read(5) == b""

    def test_nothing_is_ever_overwritten(
        self, storage: Storage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        same = uuid.uuid4()
        monkeypatch.setattr("artifacts.blobs.uuid.uuid4", lambda: same)
        keys = [storage.blobs.put(io.BytesIO(content)) for content in (b"first", b"second")]
        assert len(set(keys)) == 2
        assert [storage.read(key) for key in keys] == [b"first", b"second"]

    def test_keys_are_short_and_have_no_name_in_them(self, storage: Storage) -> None:
        content = io.BytesIO(b"a")
        content.name = "../../secret plans.md"
        assert "plans" not in storage.blobs.put(content)

    def test_what_is_not_there_is_missing(self, storage: Storage) -> None:
        storage.blobs.put(io.BytesIO(b"another"))
        with pytest.raises(BlobMissing):
            storage.blobs.open("00/00/" + "0" * 32)

    def test_deleting_is_for_good_and_may_be_done_twice(self, storage: Storage) -> None:
        kept, gone = (storage.blobs.put(io.BytesIO(content)) for content in (b"kept", b"gone"))
        for _ in range(2):
            storage.blobs.delete(gone)
        with pytest.raises(BlobMissing):
            storage.blobs.open(gone)
        assert storage.read(gone) is None
        assert storage.read(kept) == b"kept"

    def test_the_listing_has_each_key_and_when_it_was_written(self, storage: Storage) -> None:
        assert list(storage.blobs.listing()) == []
        before = timezone.now() - timedelta(seconds=2)
        keys = {storage.blobs.put(io.BytesIO(b"a")) for _ in range(7)}
        listed = dict(storage.blobs.listing())
        assert set(listed) == keys
        assert all(before <= at <= timezone.now() + timedelta(seconds=2) for at in listed.values())

    def test_a_write_that_fails_leaves_nothing(self, storage: Storage) -> None:
        """And the error is the reader's own."""
        with pytest.raises(UploadTooLarge):
            storage.blobs.put(forgetful(LONG, UploadTooLarge()))
        assert list(storage.blobs.listing()) == []
        assert list(storage.blobs.unfinished()) == []

    def test_a_storage_that_is_away_is_said_to_be(
        self, storage: Storage, caplog: pytest.LogCaptureFixture
    ) -> None:
        key = storage.blobs.put(io.BytesIO(b"a"))
        storage.take_away()
        for act in (
            lambda: storage.blobs.put(io.BytesIO(b"b")),
            lambda: storage.blobs.open(key),
            lambda: storage.blobs.delete(key),
            lambda: list(storage.blobs.listing()),
        ):
            caplog.clear()
            with pytest.raises(StorageUnavailable) as told:
                act()
            assert told.value.status == 503
            assert told.value.reason
            assert "storage_unavailable" in caplog.text


# --- a bucket's own --------------------------------------------------------------------------


@pytest.fixture
def in_bucket(bucket: Bucket) -> S3BlobStore:
    store = blob_store()
    assert isinstance(store, S3BlobStore)
    return store


def test_what_is_not_ours_is_neither_listed_nor_touched(
    in_bucket: S3BlobStore, bucket: Bucket
) -> None:
    key = in_bucket.put(io.BytesIO(b"ours"))
    bucket.write(f"{bucket.prefix} too", b"theirs")
    bucket.begin(f"{bucket.prefix} too")
    assert [listed for listed, _ in in_bucket.listing()] == [key]
    assert list(in_bucket.unfinished()) == []
    assert set(bucket.keys()) == {
        "of another program",
        f"{bucket.prefix} too",
        f"{bucket.prefix}/{key}",
    }


def test_a_listing_goes_on_past_the_first_page(
    in_bucket: S3BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("artifacts.s3._ENTRIES_AT_ONCE", 2)
    keys = {in_bucket.put(io.BytesIO(b"a")) for _ in range(5)}
    assert {key for key, _ in in_bucket.listing()} == keys


def test_unfinished_writes_are_found_and_given_up(in_bucket: S3BlobStore, bucket: Bucket) -> None:
    finished = in_bucket.put(io.BytesIO(b"a"))
    names = [f"{bucket.prefix}/aa/aa/{letter}" for letter in "ab"]
    for name in (*names, "of another program"):
        bucket.begin(name)
    assert {key for key, _ in in_bucket.unfinished()} == {"aa/aa/a", "aa/aa/b"}
    assert [key for key, _ in in_bucket.listing()] == [finished]
    in_bucket.give_up("aa/aa/a")
    assert sorted(bucket.unfinished()) == ["of another program", names[1]]


def test_an_empty_bucket_and_none_are_told_apart(
    in_bucket: S3BlobStore, bucket: Bucket, settings: Settings
) -> None:
    """Or a wrong name would make a deletion look complete."""
    with pytest.raises(BlobMissing):
        in_bucket.open("aa/aa/a")
    redirect(settings, bucket_name="nobodys-bucket")
    for act in (in_bucket.open, in_bucket.delete):
        with pytest.raises(StorageUnavailable):
            act("aa/aa/a")


@pytest.mark.faults
def test_a_read_that_breaks_off_goes_on_where_it_was(
    in_bucket: S3BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = in_bucket.put(io.BytesIO(LONG))
    broken: list[str] = []
    with in_bucket.open(key) as stream:
        get = stream.raw._client.get_object  # type: ignore[attr-defined]

        def breaking(**asked: Any) -> Any:
            answer = get(**asked)
            if len(broken) % 2 == 0:
                answer["Body"]._raw_stream.read(1_000)
                answer["Body"]._raw_stream.close()
            broken.append(asked["Range"])
            return answer

        monkeypatch.setattr(stream.raw._client, "get_object", breaking)  # type: ignore[attr-defined]
        assert stream.read() == LONG
    assert len(broken) > 2


def test_a_part_costs_a_part(in_bucket: S3BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    key = in_bucket.put(io.BytesIO(LONG))
    asked: list[str] = []
    with in_bucket.open(key) as stream:
        client = stream.raw._client  # type: ignore[attr-defined]
        get = client.get_object

        def recorded(**given: Any) -> Any:
            asked.append(given["Range"])
            return get(**given)

        monkeypatch.setattr(client, "get_object", recorded)
        stream.seek(MIB)
        stream.read(32 * 1024)
    assert asked == [f"bytes={MIB}-{MIB + 64 * 1024 - 1}"]


def test_an_object_that_was_replaced_while_it_is_read(
    in_bucket: S3BlobStore, bucket: Bucket
) -> None:
    key = in_bucket.put(io.BytesIO(LONG))
    with in_bucket.open(key) as stream:
        stream.read(10)
        bucket.write(f"{bucket.prefix}/{key}", LONG[::-1])
        with pytest.raises(BlobDamaged):
            stream.read()


@pytest.mark.django_db
def test_ready_with_a_bucket_and_not_without(
    client: Client, bucket: Bucket, settings: Settings
) -> None:
    assert client.get("/readyz").json()["checks"]["storage"] == "ok"
    assert list(bucket.keys()) == ["of another program"]
    redirect(settings, endpoint_url=nowhere())
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["storage"] == "unavailable"


def checked() -> str:
    out = io.StringIO()
    try:
        call_command("check", "--tag", "storage", "--deploy", stdout=out, stderr=out)
    except SystemCheckError as error:
        return str(error)
    return out.getvalue()


def test_the_deployment_check_asks_the_bucket(bucket: Bucket, settings: Settings) -> None:
    assert "no issues" in checked()
    bucket.client.put_bucket_versioning(
        Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"}
    )
    assert "artifacts.W001" in checked()
    redirect(settings, bucket_name="nobodys-bucket")
    assert "artifacts.E001" in checked()
