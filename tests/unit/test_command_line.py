"""What our command lines do alike: NAME=VALUE options, and errors that become exit codes."""

from __future__ import annotations

import pytest

import catalog_sync.cli
import pydelta
import pydelta.api.cli.cli
from pydelta.api.console.command_line import named_values, run_app, storage_options
from pydelta.errors import InvalidArgumentError, StorageError


@pytest.mark.parametrize(
    ("items", "found"),
    [
        (None, {}),
        ([], {}),
        (["a=1", "a=2"], {"a": "2"}),
        (["a=", "b==x", " c = y "], {"a": "", "b": "=x", "c": " y "}),
    ],
)
def test_values_by_name(items, found):
    assert storage_options(items) == found


@pytest.mark.parametrize(("item", "what"), [("hush", "no value"), ("=hush", "no name")])
def test_what_is_no_pair_is_refused_and_not_shown(item, what):
    with pytest.raises(InvalidArgumentError, match=f"A partition column has {what}") as caught:
        named_values(["p=1", item], what="A partition column", hint="Write column=value.")
    assert "hush" not in str(caught.value)
    assert caught.value.hint == "Write column=value."


@pytest.mark.parametrize(("retryable", "code"), [(True, 2), (False, 1)])
def test_an_error_is_said_and_is_the_exit_code(capsys, retryable, code):
    def app(args):
        assert args == ["a"]
        raise StorageError("It is busy.", retryable=retryable, hint="Wait.")

    with pytest.raises(SystemExit) as caught:
        run_app(app, ("a",))
    assert caught.value.code == code
    assert capsys.readouterr() == ("", "Error: [DELTA_STORAGE_ERROR] It is busy.\n  Next: Wait.\n")


def test_arguments_of_the_process_are_left_to_the_application():
    seen = []
    run_app(lambda args: seen.append(args), None)
    assert seen == [None]


@pytest.mark.parametrize(
    ("app", "name"),
    [(pydelta.api.cli.cli.app, "pydelta"), (catalog_sync.cli.app, "catalog_sync")],
    ids=("pydelta", "catalog_sync"),
)
def test_a_program_prints_its_version(capsys, app, name):
    with pytest.raises(SystemExit) as caught:
        run_app(app, ("--version",))
    assert caught.value.code in (None, 0)
    assert capsys.readouterr() == (f"{name} {pydelta.__version__}\n", "")
