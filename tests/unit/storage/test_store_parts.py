"""The registry, the probe, the reading of client errors, and paths."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.exceptions import BaseError, GenericError

from pydelta.errors import (
    InvalidArgumentError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    UnsafeStoreError,
)
from pydelta.storage import MemoryStore, PutOutcome, open_store, register_store, registry
from pydelta.storage.object_errors import read_failure, to_storage_error
from pydelta.storage.probe import ProbeResult, ensure_safe, probe_put_if_absent
from pydelta.storage.uris import check_path, normalize_uri, plain_location, scheme_of, split_location

FACTORY_CALLS: list[tuple[str, dict]] = []


def factory(uri, options):
    FACTORY_CALLS.append((uri, dict(options)))
    return MemoryStore("memory://custom/t")


@pytest.fixture(autouse=True)
def _registered_for_one_test_only(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTERED", {})
    FACTORY_CALLS.clear()
    registry._installed.cache_clear()
    yield
    registry._installed.cache_clear()


def test_the_setting_goes_before_what_is_registered_and_that_before_entry_points(monkeypatch):
    entry = EntryPoint(name="oss", group="pydelta.log_stores", value=f"{__name__}:factory")
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry] if group == entry.group else [])
    assert open_store("oss://b/t/").root == "memory://custom/t"
    assert FACTORY_CALLS == [("oss://b/t", {})]
    register_store("oss", lambda uri, options: MemoryStore("memory://registered/t"))
    assert open_store("OSS://b/t").root == "memory://registered/t"
    setting = {"spark.pydelta.logStore.oss": f"{__name__}:factory"}
    assert open_store("oss://b/t", setting).root == "memory://custom/t"
    assert FACTORY_CALLS[-1] == ("oss://b/t", setting)


def test_a_built_in_scheme_can_be_replaced():
    register_store("s3a", factory)
    assert open_store("s3a://b/t").root == "memory://custom/t"


@pytest.mark.parametrize("value", ["nowhere.at.all:x", "pydelta.storage:nothing", "no-colon", ":x", "pydelta.storage:"])
def test_a_factory_that_cannot_be_loaded_is_named_with_its_setting(value):
    with pytest.raises(InvalidArgumentError, match=r"spark\.pydelta\.logStore\.oss") as caught:
        open_store("oss://b/t", {"spark.pydelta.logStore.oss": value})
    assert "package.module:function" in caught.value.hint


@pytest.mark.parametrize("scheme", ["", "S3"])
def test_a_scheme_is_registered_in_lower_case(scheme):
    with pytest.raises(InvalidArgumentError):
        register_store(scheme, factory)


def test_memory_stores_of_one_name_share_their_objects():
    open_store("memory://shared-name/a").put("b/x", b"1")
    assert open_store("memory://shared-name/a/b").read("x") == b"1"
    assert open_store("memory://other-name/a").head("b/x") is None
    assert open_store("memory://shared-name/a%20b").root == "memory://shared-name/a%20b"
    with pytest.raises(InvalidArgumentError):
        open_store("memory:///x")


def test_locations():
    assert split_location("hdfs://nn:8020/a b/#?%41/") == ("hdfs", "nn:8020", "a b/#?%41")
    assert split_location("abfss://box@acct.dfs.core.windows.net/t")[1] == "box@acct.dfs.core.windows.net"
    assert normalize_uri("s3a://b/x y%20//") == "s3a://b/x y%20"
    assert scheme_of("C") == "file"
    assert check_path("a/..b/c..") == "a/..b/c.."


@given(
    st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1).filter(lambda x: x not in (".", ".."))
)
def test_a_location_as_it_is_shown_names_the_same_folder(name):
    uri = normalize_uri(f"/data/{name}")
    shown = plain_location(uri)
    assert normalize_uri(shown) == uri
    assert "%" in name or shown == f"file:/data/{name}"
    assert plain_location("s3a://b/a%20b") == "s3a://b/a%20b"


class _Answers(MemoryStore):
    """Answers a race as it is told to; what is stored is the last or the first one's."""

    def __init__(self, outcomes, *, keep_first=True, late=PutOutcome.ALREADY_EXISTS, root="s3a://answers/t"):
        super().__init__(f"memory://answers-{id(self)}/t")
        self.outcomes, self.keep_first, self.late, self.name = list(outcomes), keep_first, late, root
        self.raced = 0

    @property
    def root(self):
        return self.name

    def put_if_absent(self, path, data):
        if data == b"latecomer":
            if self.late is PutOutcome.CREATED:
                self.put(path, data)
            return self.late
        outcome = self.outcomes.pop()
        self.raced += 1
        if not self.keep_first or outcome is not PutOutcome.ALREADY_EXISTS:
            self.put(path, data)
        return outcome


C, A, U = PutOutcome.CREATED, PutOutcome.ALREADY_EXISTS, PutOutcome.UNKNOWN


@pytest.mark.parametrize(
    ("store", "safe"),
    [
        (_Answers([C, A, A, A]), True),
        (_Answers([U, A, A, A]), True),
        (_Answers([C, C, A, A]), False),
        (_Answers([C, A, A, A], late=C), False),
        (_Answers([C, A, A, A], late=U), True),
    ],
)
def test_what_a_race_shows(store, safe):
    result = probe_put_if_absent(store, writers=4)
    assert result.safe is safe
    assert list(store.list_all()) == []


class _Silent(MemoryStore):
    def put_if_absent(self, path, data):
        return U


def test_a_race_without_a_certain_reply_says_so_and_not_that_an_object_is_missing():
    with pytest.raises(StorageError, match=r"none of 4 requests .* got a definite reply") as caught:
        probe_put_if_absent(_Silent("memory://silent/t"), writers=4)
    assert caught.value.retryable
    assert not isinstance(caught.value, ObjectNotFoundError)


@pytest.mark.parametrize(
    ("result", "safe"),
    [
        (ProbeResult(writers=2, created=1, unknown=1, kept=False), False),
        (ProbeResult(writers=2, created=0, unknown=0, kept=True), False),
        (ProbeResult(writers=2, created=1, unknown=1, kept=True), True),
    ],
)
def test_when_a_race_counts_as_safe(result, safe):
    assert result.safe is safe


def test_a_store_found_unsafe_is_raced_again_and_a_safe_one_is_not():
    unsafe = _Answers([C] * 16, root="s3a://unsafe-once/t")
    for _ in range(2):
        with pytest.raises(UnsafeStoreError, match="s3a://unsafe-once"):
            ensure_safe(unsafe)
    assert unsafe.raced == 16
    safe = _Answers([A] * 7 + [C], root="s3a://safe-once/t")
    ensure_safe(safe)
    ensure_safe(safe)
    assert safe.raced == 8


def _error(text, kind=GenericError):
    return kind(f"Generic S3 error: {text}\n\nDebug source:\nGeneric {{ retries: 0, max_retries: 0 }}")


@pytest.mark.parametrize(
    ("error", "kind", "surely", "retryable"),
    [
        (_error("operation timed out"), "lost", False, True),
        (_error("connection closed before message completed"), "lost", False, True),
        (_error("HttpError {\n kind: Connect,\n"), "connect", True, True),
        (_error("HttpError {\n kind: Timeout,\n"), "lost", False, True),
        (_error("Server returned non-2xx status code: 503 Slow Down"), "reply", False, True),
        (_error("Server returned non-2xx status code: 400 Bad Request"), "reply", True, False),
        (_error("Server returned non-2xx status code: 403 Forbidden"), "denied", True, False),
        (_error("Server returned non-2xx status code: 401 Unauthorized"), "denied", True, False),
        (_error("Server returned non-2xx status code: 429 Too Many"), "reply", True, True),
        (_error("PUT http://169.254.169.254/latest/api/token failed"), "credentials", True, False),
        (_error("error sending request for url (http://169.254.7.9:9000/b/_delta_log/7.json)"), "lost", False, True),
        (ValueError("Could not parse path"), "path", True, False),
        (FileNotFoundError("status code: 404"), "missing", True, False),
        (GenericError("non-2xx status code: 400 x\n retries: 2,"), "reply", False, False),
        (GenericError("HttpError { kind: Connect, retries: 1,"), "connect", False, True),
        (BaseError(""), "lost", False, True),
    ],
)
def test_what_a_clients_exception_says(error, kind, surely, retryable):
    failure = read_failure(error)
    assert (failure.kind, failure.surely_not_applied, failure.retryable) == (kind, surely, retryable)


@pytest.mark.parametrize(("where", "bucket"), [("s3a://nowhere/a/b.csv", "nowhere"), ("nowhere", "nowhere")])
def test_a_refusal_names_the_bucket_since_a_missing_one_is_refused_too(where, bucket):
    denied = to_storage_error(_error("Server returned non-2xx status code: 403 Forbidden"), where=where)
    assert isinstance(denied, StoragePermissionError)
    assert f"there is no bucket {bucket}, or the key may not do this there" in str(denied)


def test_a_clock_that_the_store_does_not_accept_is_not_blamed_on_the_keys():
    reply = (
        "Server returned non-2xx status code: 403 Forbidden <Error><Code>RequestTimeTooSkewed</Code>"
        "<Message>The difference to the server&#39;s time is too large.</Message></Error>"
    )
    skewed = to_storage_error(_error(reply), where="s3a://b/k")
    assert isinstance(skewed, StoragePermissionError)
    assert "clock" in str(skewed)
    assert "server's time" in str(skewed)
    assert "bucket" not in str(skewed)


def test_messages_are_short_and_without_secrets():
    text = "GET https://x.blob/c/k?sv=1&sig=abc%2Fdef&se=2 with key p%2Fq and p/q failed"
    error = to_storage_error(_error(text), where="abfss://c@x/k", secrets=["p/q"])
    assert isinstance(error, StorageError)
    for hidden in ("abc%2Fdef", "p%2Fq", "p/q", "Debug"):
        assert hidden not in str(error)
    assert "abfss://c@x/k" in str(error)
    denied = to_storage_error(_error("PUT http://169.254.169.254/x"), where="s3a://b/k")
    assert isinstance(denied, StoragePermissionError)
    assert "no credentials were found" in str(denied)
