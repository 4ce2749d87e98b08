"""Files that say who may use Spark Connect."""

from __future__ import annotations

import pytest
from leaks import secret

from pydelta.api.console.guard import Guard
from pydelta.errors import InvalidArgumentError

TOKEN = secret("0123456789abcdef-ann")
OTHER = secret("0123456789abcdef-bob")


def written(tmp_path, text, mode=0o600):
    path = tmp_path / "users"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_each_token_is_its_user_s_and_no_other_text_is_anybody_s(tmp_path):
    guard = Guard.read(written(tmp_path, f"# who\n\nann:{TOKEN}\nbob:{OTHER}\n"), None, None)
    assert guard.user_of(f"Bearer {TOKEN}") == "ann"
    assert guard.user_of(f"Bearer {OTHER}") == "bob"
    for shown in ("", "Bearer ", f"Bearer {TOKEN}x", "ann", f"Bearer {TOKEN[:-1]}"):
        assert guard.user_of(shown) is None


def test_no_files_are_no_guard():
    guard = Guard.read(None, None, None)
    assert not guard.users
    assert not guard.is_closed


def test_secrets_are_in_no_text_of_a_guard(tmp_path):
    guard = Guard.read(written(tmp_path, f"ann:{TOKEN}\n"), None, None)
    assert TOKEN not in repr(guard)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ann\n", "Line 1 "),
        (f"ann:{TOKEN}\nbob:short\n", "Line 2 "),
        (f":{TOKEN}\n", "Line 1 "),
        (f"ann:{TOKEN}\nbob:{TOKEN}\n", "bob and ann share a token"),
        ("# nobody\n", "names no user"),
    ],
)
def test_what_is_wrong_in_the_file_is_said_without_a_token(tmp_path, text, said):
    with pytest.raises(InvalidArgumentError, match=said) as caught:
        Guard.read(written(tmp_path, text), None, None)
    assert TOKEN not in str(caught.value)


def test_a_file_that_others_may_read_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="Other users"):
        Guard.read(written(tmp_path, f"ann:{TOKEN}\n", 0o644), None, None)


def test_a_file_that_is_not_there_and_half_a_certificate_are_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="cannot be read"):
        Guard.read(str(tmp_path / "none"), None, None)
    with pytest.raises(InvalidArgumentError, match="belong together"):
        Guard.read(None, "cert.pem", None)
