"""What a key may do is asked before a job begins; the answer names right, place and key, and never the secret."""

from __future__ import annotations

import uuid

import pytest
from leaks import secret

from pydelta.errors import StoragePermissionError
from pydelta.storage import DeleteReport
from pydelta.storage.memory import MemoryStore
from pydelta.storage.rights import require_rights

OPTIONS = {"fs.s3a.access.key": "spark", "fs.s3a.secret.key": secret("store")}


class Refusing(MemoryStore):
    """Refuses one kind of request."""

    def __init__(self, right):
        super().__init__(f"memory://{uuid.uuid4()}/checkpoint")
        self.right = right

    def _ask(self, right):
        if right == self.right:
            raise StoragePermissionError("AccessDenied")

    def list_from(self, start, *, prefix):
        self._ask("list")
        return super().list_from(start, prefix=prefix)

    def put(self, path, data):
        self._ask("write")
        super().put(path, data)

    def read(self, path):
        self._ask("read")
        return super().read(path)

    def delete_many(self, paths):
        if self.right == "delete":
            return DeleteReport(deleted=0, failed=((next(iter(paths)), "AccessDenied"),), denied=True)
        return super().delete_many(paths)


def test_a_key_that_may_do_all_leaves_nothing_behind():
    store = Refusing(None)
    require_rights(store, "the stream's checkpoint", OPTIONS)
    assert list(store.list_all()) == []


@pytest.mark.parametrize("right", ["list", "write", "read", "delete"])
def test_a_right_that_is_missing_is_named_with_the_key_and_the_place(right):
    store = Refusing(right)
    with pytest.raises(StoragePermissionError) as refused:
        require_rights(store, "the stream's checkpoint", OPTIONS)
    assert f"{store.root} is the stream's checkpoint, but the key spark may not {right} objects there." in str(
        refused.value
    )
    assert secret("store") not in str(refused.value)


def test_without_a_key_in_the_settings_it_is_the_key_in_use():
    with pytest.raises(StoragePermissionError, match="the key in use may not write"):
        require_rights(Refusing("write"), "the stream's checkpoint", {})
