"""A worker's Python is this one if it is the same file in the same environment, by whichever path it is named."""

from __future__ import annotations

import sys

import pytest

from pydelta.engines.spark.session.checks import _same_interpreter


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """An environment whose Python is a link, as in one of venv, and which is this process'."""
    base = tmp_path / "base" / "python3"
    base.parent.mkdir()
    base.touch()
    for name in ("ours", "theirs"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin" / "python").symlink_to(base)
    (tmp_path / "linked").symlink_to(tmp_path / "ours")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "ours" / "bin" / "python"))
    return tmp_path


@pytest.mark.parametrize(
    ("path", "same"),
    [
        ("ours/bin/python", True),
        ("ours/bin/../bin/python", True),
        ("linked/bin/python", True),
        ("theirs/bin/python", False),
        ("base/python3", False),
        ("ours/bin/other", False),
    ],
)
def test_an_environment_is_the_same_by_its_folder(environment, path, same):
    assert _same_interpreter(str(environment / path)) is same


def test_a_link_to_the_environment_runs_this_interpreter(environment, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(environment / "linked" / "bin" / "python"))
    assert _same_interpreter(str(environment / "ours" / "bin" / "python"))
    assert not _same_interpreter(str(environment / "theirs" / "bin" / "python"))
