"""What an S3 service may answer, and what the store makes of it: seen over HTTP, request by request."""

from __future__ import annotations

import os
import re
import time
import traceback
import urllib.request
import uuid

import pytest
from leaks import secret
from s3_server import Misbehaviour, S3Server

from pydelta.errors import StorageError, StorageFullError, StoragePermissionError, UnsafeStoreError
from pydelta.storage import PutOutcome, objects, open_store
from pydelta.storage.object_errors import read_failure
from pydelta.storage.probe import ensure_safe, probe_put_if_absent
from pydelta.storage.uploads import PART_BYTES

BUCKET = "contract"


@pytest.fixture(autouse=True)
def _no_faults_left(s3_server):
    s3_server.requests.clear()
    yield
    assert s3_server.faults == [], "a fault was prepared and never met"


@pytest.fixture
def puts(s3_server):
    return lambda name: [path for method, path in s3_server.requests if method == "PUT" and path.endswith(name)]


@pytest.mark.parametrize("status", [500, 503, 504, 408])
def test_a_create_that_took_effect_and_whose_reply_was_lost_is_unknown_and_sent_once(s3_server, s3_store, puts, status):
    s3_server.faults.append(Misbehaviour("0.json", status=status, applied=True))
    assert s3_store.put_if_absent("_delta_log/0.json", b"mine") is PutOutcome.UNKNOWN
    assert len(puts("0.json")) == 1
    assert s3_store.read("_delta_log/0.json") == b"mine"


def test_a_create_that_the_service_failed_is_unknown_and_sent_once(s3_server, s3_store, puts):
    s3_server.faults.append(Misbehaviour("0.json", status=500, applied=False))
    assert s3_store.put_if_absent("_delta_log/0.json", b"mine") is PutOutcome.UNKNOWN
    assert len(puts("0.json")) == 1
    assert s3_store.head("_delta_log/0.json") is None


def test_a_conflict_with_a_request_under_way_is_tried_again(s3_server, s3_store, puts):
    s3_server.faults.append(Misbehaviour("0.json", status=409, applied=False, code="ConditionalRequestConflict"))
    assert s3_store.put_if_absent("0.json", b"mine") is PutOutcome.CREATED
    assert len(puts("0.json")) == 2


def test_a_conflict_over_an_object_that_is_there_is_a_lost_race(s3_server, s3_store):
    s3_store.put("0.json", b"theirs")
    s3_server.faults.append(Misbehaviour("0.json", status=409, applied=False, code="ConditionalRequestConflict"))
    assert s3_store.put_if_absent("0.json", b"mine") is PutOutcome.ALREADY_EXISTS
    assert s3_store.read("0.json") == b"theirs"


def test_a_conflict_that_never_ends_is_no_lost_race(s3_server, s3_store):
    s3_server.faults.append(Misbehaviour("0.json", 409, applied=False, code="ConditionalRequestConflict", times=4))
    with pytest.raises(StorageError, match="another request for it is running") as caught:
        s3_store.put_if_absent("0.json", b"mine")
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (403, "AccessDenied", StoragePermissionError),
        (501, "NotImplemented", UnsafeStoreError),
        (400, "XMinioStorageFull", StorageFullError),
        (507, "XMinioStorageFull", StorageFullError),
        (400, "InvalidRequest", StorageError),
    ],
)
def test_a_refused_create_is_an_error_of_its_kind(s3_server, s3_store, status, code, expected):
    s3_server.faults.append(Misbehaviour("0.json", status=status, applied=False, code=code))
    with pytest.raises(expected, match=code) as caught:
        s3_store.put_if_absent("0.json", b"x")
    assert not caught.value.retryable
    assert caught.value.hint or expected is StorageError
    assert s3_store.head("0.json") is None


def test_a_create_stays_conditional_whatever_the_environment_says(s3_settings, monkeypatch):
    for name, value in [("AWS_CONDITIONAL_PUT", "disabled"), ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")]:
        monkeypatch.setitem(os.environ, name, value)
    options = {**s3_settings, "fs.s3a.attempts.maximum": "1"}  # settings of their own, so a client of their own
    store = open_store(f"s3a://{BUCKET}/{uuid.uuid4()}", options)
    assert [store.put_if_absent("x", b"1"), store.put_if_absent("x", b"2")] == [
        PutOutcome.CREATED,
        PutOutcome.ALREADY_EXISTS,
    ]


def test_what_may_be_repeated_is_repeated(s3_server, s3_store):
    s3_server.faults.append(Misbehaviour("/x", status=503, applied=True, times=2))
    s3_store.put("x", b"1")
    s3_server.faults.append(Misbehaviour("/x", status=500, applied=False, method="GET"))
    assert s3_store.read("x") == b"1"


def test_no_message_and_no_traceback_shows_a_secret_or_a_dump(s3_server, s3_store):
    s3_server.faults.append(Misbehaviour("/x", status=403, applied=False, code=secret("s3")))
    with pytest.raises(StoragePermissionError) as caught:
        s3_store.put("x", b"1")
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(s3_store)
    assert secret("s3") not in shown
    assert "Debug source" not in shown
    assert "fs.s3a.access.key" in shown


def test_a_service_that_ignores_conditions_is_found_out():
    server = S3Server(ignore_conditions=True)
    try:
        urllib.request.urlopen(urllib.request.Request(f"{server.endpoint}/{BUCKET}", method="PUT"), timeout=30).close()
        store = open_store(f"s3a://{BUCKET}/t", server.options())
        result = probe_put_if_absent(store)
        assert (result.safe, result.created, result.latecomer_refused) == (False, 8, False)
        with pytest.raises(UnsafeStoreError, match="8 were told that they succeeded") as caught:
            ensure_safe(store)
        assert "spark.pydelta.logStore" in str(caught.value)
        assert list(store.list_all()) == []
    finally:
        server.stop()


def test_the_probe_runs_once_for_a_bucket_in_a_process(s3_server, s3_settings):
    ensure_safe(open_store(f"s3a://{BUCKET}/{uuid.uuid4()}", s3_settings))
    s3_server.requests.clear()
    ensure_safe(open_store(f"s3a://{BUCKET}/{uuid.uuid4()}", s3_settings))
    assert s3_server.requests == []


def test_a_listing_starts_at_its_offset_and_steps_over_subdirectories(s3_server, s3_store, monkeypatch):
    monkeypatch.setattr(objects, "_PAGE", 10)
    names = [f"{number:020}.json" for number in range(0, 60, 5)] + ["_last_checkpoint", "zz"]
    for name in names + [f"_sidecars/{number:03}" for number in range(25)]:
        s3_store.put(f"_delta_log/{name}", b"x")
    assert [info.path for info in s3_store.list_from("", prefix="_delta_log")] == [f"_delta_log/{n}" for n in names]
    found = s3_store.list_from(f"{30:020}.json", prefix="_delta_log")
    assert [info.path for info in found] == [f"_delta_log/{name}" for name in names[6:]]
    assert [info.path for info in s3_store.list_from("_sidecars/", prefix="_delta_log")] == ["_delta_log/zz"]


def test_a_directory_marker_is_no_object_of_its_directory(s3_server, s3_settings):
    name = str(uuid.uuid4())
    for key in (f"{name}/_delta_log/", f"{name}/_delta_log/0.json"):
        request = urllib.request.Request(f"{s3_server.endpoint}/{BUCKET}/{key}", method="PUT", data=b"")
        urllib.request.urlopen(request, timeout=30).close()
    store = open_store(f"s3a://{BUCKET}/{name}", s3_settings)
    assert [info.path for info in store.list_from("", prefix="_delta_log")] == ["_delta_log/0.json"]


def test_the_same_key_is_meant_whatever_the_scheme_and_percent_signs_stay(s3_settings):
    name = f"{uuid.uuid4()}/50%25 # é"
    open_store(f"s3a://{BUCKET}/{name}", s3_settings).put("x", b"1")
    assert open_store(f"s3://{BUCKET}/{name}/", s3_settings).read("x") == b"1"
    assert open_store(f"s3n://{BUCKET}", s3_settings).read(f"{name}/x") == b"1"


def test_credentials_in_a_location_are_refused_and_not_repeated(s3_settings):
    with pytest.raises(ValueError, match="carries credentials") as caught:
        open_store("s3a://key:hush@bucket/t", s3_settings)
    assert "hush" not in str(caught.value)


def _uploads(s3_server) -> list[str]:
    with urllib.request.urlopen(f"{s3_server.endpoint}/{BUCKET}?uploads", timeout=30) as reply:
        return re.findall(r"<UploadId>([^<]*)", reply.read().decode())


CHUNKS = [bytes([number]) * 700_001 for number in range(18)]  # a little over two parts


def test_a_large_object_is_uploaded_in_parts_and_appears_at_close(s3_server, s3_store):
    with s3_store.open_writer("big") as stream:
        for chunk in CHUNKS:
            stream.write(chunk)
        assert s3_store.head("big") is None
        assert stream.tell() == sum(map(len, CHUNKS)) > 2 * PART_BYTES
    assert s3_store.read("big") == b"".join(CHUNKS)
    assert _uploads(s3_server) == []


def test_an_aborted_or_forgotten_large_object_leaves_no_parts(s3_server, s3_store):
    stream = s3_store.open_writer("big")
    for chunk in CHUNKS:
        stream.write(chunk)
    stream.abort()
    stream.close()
    forgotten = s3_store.open_writer("big")
    for chunk in CHUNKS:
        forgotten.write(chunk)
    del forgotten
    assert _uploads(s3_server) == []
    assert list(s3_store.list_all()) == []


def test_an_upload_that_is_refused_raises_and_leaves_nothing(s3_server, s3_store):
    s3_server.faults.append(Misbehaviour("/big", status=403, applied=False, code="AccessDenied", method="POST"))
    with pytest.raises(StoragePermissionError, match="AccessDenied"), s3_store.open_writer("big") as stream:
        for chunk in CHUNKS:
            stream.write(chunk)
    assert stream.closed
    assert list(s3_store.list_all()) == []


def test_a_bulk_deletion_that_fails_is_reported_by_name(s3_server, s3_store):
    for name in ("a", "b"):
        s3_store.put(name, b"1")
    s3_server.faults.append(Misbehaviour(f"/{BUCKET}", status=403, applied=False, code="AccessDenied", method="POST"))
    report = s3_store.delete_many(["a", "b"])
    assert report.deleted == 0
    assert [name for name, reason in report.failed] == ["a", "b"]
    assert "AccessDenied" in report.failed[0][1]
    assert s3_store.read("a") == b"1"


def _answering(s3_server, monkeypatch, key, *codes):
    """Let the service say of one key of bulk deletions that it was not deleted, with one code after the other."""
    inner, left = s3_server._inner, list(codes)

    def answer(environ, start):
        if environ["REQUEST_METHOD"] != "POST" or not left:
            return inner(environ, start)
        keys = re.findall(r"<Key>(.*?)</Key>", environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])).decode())
        parts = [f"<Deleted><Key>{name}</Key></Deleted>" for name in keys if not name.endswith(f"/{key}")]
        failed = [name for name in keys if name.endswith(f"/{key}")]
        if failed:
            code = left.pop(0)
            parts.append(f"<Error><Key>{failed[0]}</Key><Code>{code}</Code><Message>not that one</Message></Error>")
        body = f"<DeleteResult>{''.join(parts)}</DeleteResult>".encode()
        start("200 OK", [("Content-Length", str(len(body))), ("Content-Type", "application/xml")])
        return [body]

    monkeypatch.setattr(s3_server, "_inner", answer)


def test_of_a_bulk_deletion_that_is_denied_in_part_each_key_is_told(s3_server, s3_store, monkeypatch):
    _answering(s3_server, monkeypatch, "b", "AccessDenied", "AccessDenied")
    report = s3_store.delete_many(["a", "b", "c"])
    assert report.deleted == 2
    assert [name for name, _ in report.failed] == ["b"]
    assert "AccessDenied" in report.failed[0][1]
    assert (report.denied, report.retryable) == (True, False)


def test_a_bulk_deletion_that_is_slowed_down_is_repeated_as_a_whole(s3_server, s3_store, monkeypatch):
    for name in ("a", "b"):
        s3_store.put(name, b"1")
    _answering(s3_server, monkeypatch, "b", "SlowDown")
    assert s3_store.delete_many(["a", "b"]).deleted == 2
    assert list(s3_store.list_all()) == []
    failure = read_failure(
        RuntimeError('Generic { source: DeleteFailed { path: "b", code: "SlowDown", message: "" } }')
    )
    assert (failure.kind, failure.retryable, failure.is_outage, failure.is_denied) == ("part", True, True, False)


def test_pages_are_of_a_thousand_keys_and_ranges_end_with_the_page_of_their_last_key(s3_server, s3_store):
    for number in range(1203):
        s3_store.put(f"k{number:04}", b"1")
    s3_server.requests.clear()
    pages = list(s3_store.list_pages())
    assert [len(page.paths) for page in pages] == [1000, 203]
    assert pages[0].sizes[0] == 1
    assert abs(pages[0].times_ms[0] / 1000 - time.time()) < 600
    ranges = [list(s3_store.list_pages(after=after, before=before)) for after, before in (("", "k0600"), ("k0600", ""))]
    found = [path for pages in ranges for page in pages for path in page.paths]
    assert found == [f"k{number:04}" for number in range(1203)]
    assert [len(pages) for pages in ranges] == [1, 1]
    assert [page.paths for page in s3_store.list_pages(after="z")] == [[]]
    assert len([1 for method, _ in s3_server.requests if method == "GET"]) == 5
    assert s3_store.remove_directories(["k"]) == []


def test_a_vacuum_counts_its_requests_as_the_service_does(s3_server, s3_store):
    from pydelta.log import DeltaLog
    from pydelta.settings import Settings
    from pydelta.testing import TableBuilder
    from pydelta.testing.commands import vacuum

    table = TableBuilder(s3_store, columns={"x": "long"})
    table.commit()
    for number in range(1100):
        s3_store.put(f"p=ä %41/g{number:04}", b"1")
    s3_server.requests.clear()
    later = time.time_ns() // 1_000_000 + 8 * 86_400_000
    result = vacuum(DeltaLog(s3_store, settings=Settings(probe_store=False)), now_ms=later)
    assert result.deleted == 1100
    assert [method for method, _ in s3_server.requests].count("POST") == result.delete_requests == 2
    assert result.list_requests == 2
    assert [info.path for info in s3_store.list_all() if not info.path.startswith("_delta_log")] == []
