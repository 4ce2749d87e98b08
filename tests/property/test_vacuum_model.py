"""Random histories against a model: what VACUUM deletes is exactly what is old and what nothing needs.

The model knows no log: it remembers which files each version reads, when versions came and went, and what readers of
manifests were told. Writers put files long before they commit them, or never do.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pydelta.commands.vacuum.command import Vacuum
from pydelta.commands.vacuum.inventory_sources import from_frame
from pydelta.commands.vacuum.notes import read_clean_version
from pydelta.errors import CannotVacuumLiteError
from pydelta.log.vector_files import read_deleted_rows, write_vectors
from pydelta.manifests import publish
from pydelta.protocol.actions import AddFile, Protocol
from pydelta.protocol.paths import decode_log_path
from pydelta.protocol.vectors import vector_path
from pydelta.storage.memory import MemoryStore
from pydelta.testing.commands import vacuum
from pydelta.testing.garbage import HOUR_MS, Yard

_NAMES = itertools.count()
FEATURES = ("deletionVectors",)
FOLDERS = ("p=1", "p=a b", "p=%3A", "Qx")


def reads(add: AddFile) -> set[str]:
    """The files that a reader of a live file opens."""
    found = {decode_log_path(add.path).text}
    if add.deletion_vector is not None:
        found.add(decode_log_path(vector_path(add.deletion_vector) or "").text)
    return found


@dataclass
class Model:
    """A table and what there is to know of it."""

    yard: Yard
    live: dict[str, AddFile] = field(default_factory=dict)
    gone: list[AddFile] = field(default_factory=list)
    pending: list[AddFile] = field(default_factory=list)
    versions: list[tuple[int, set[str], set[str]]] = field(default_factory=list)
    """Time, files read, change data; by version."""
    told: set[str] = field(default_factory=set)
    oldest: int = 0
    list_of: pl.DataFrame | None = None
    files: int = 0

    def new_file(self, choice: int) -> AddFile:
        self.files += 1
        path = f"{FOLDERS[choice % len(FOLDERS)]}/part-{self.files}"
        return self.yard.add(path, age=0)

    def commit(self, *actions, changes=()):
        for action in actions:
            key = decode_log_path(action.path).text
            if isinstance(action, AddFile):
                self.live[key] = action
            elif key in self.live and action.deletion_vector == self.live[key].deletion_vector:
                self.gone.append(self.live.pop(key))
        cdc = [self.yard.cdc(f"_change_data/cdc-{len(self.versions)}-{number}", age=0) for number in changes]
        self.yard.commit(*actions, *cdc, age=0)
        self.note({decode_log_path(action.path).text for action in cdc})

    def note(self, changes: set[str]) -> None:
        files = set().union(*(reads(add) for add in self.live.values())) if self.live else set()
        self.versions.append((self.yard.now_ms, files, changes))

    def needed(self, cutoff: int, *, unreadable_too: bool) -> set[str]:
        """What must stay. Files of versions that log clean-up has taken stay while there are tombstones of them."""
        found = set(self.told)
        for version, (at, files, changes) in enumerate(self.versions):
            later = self.versions[version + 1][0] if version + 1 < len(self.versions) else None
            if (unreadable_too or version >= self.oldest) and (later is None or later >= cutoff):
                found |= files
            if at >= cutoff:
                found |= changes
        return found

    def times(self) -> dict[str, int]:
        found = {info.path: info.modification_time_ms for info in self.yard.store.list_all()}
        return {path: at for path, at in found.items() if not path.startswith(("_delta_log", "_pydelta", "_symlink"))}

    # -- what happens --------------------------------------------------------------------------------------------

    def write(self, choice: int) -> None:
        self.commit(self.new_file(choice), self.new_file(choice + 1), changes=range(choice % 2))

    def begin(self, choice: int) -> None:
        self.pending.append(self.new_file(choice))

    def finish(self, choice: int) -> None:
        if self.pending:
            add = self.pending.pop(choice % len(self.pending))
            if (
                decode_log_path(add.path).text in self.times()
            ):  # a writer that took longer than the retention has lost it
                self.commit(add)

    def remove(self, choice: int) -> None:
        if self.live:
            add = self.live[sorted(self.live)[choice % len(self.live)]]
            said = (0, 5, None)[choice % 3]
            self.commit(self.yard.remove(add, age=said), changes=range(choice % 3))

    def rewrite(self, choice: int) -> None:
        removed = [self.yard.remove(add, age=0) for add in self.live.values()]
        self.commit(*removed, self.new_file(choice))

    def hide(self, choice: int) -> None:
        if not self.live:
            return
        chosen = sorted(self.live)[: 1 + choice % 2]
        rows = [np.array([choice % 7], dtype=np.uint64) for _ in chosen]
        vectors, paths = write_vectors(rows, store=self.yard.store, random_folders=choice % 2 == 0)
        for path in paths:
            self.yard.backdate(decode_log_path(path).text, age=0)
        actions = []
        for key, vector in zip(chosen, vectors, strict=True):
            actions += [self.yard.remove(self.live[key], age=0), self.live[key].replace(deletion_vector=vector)]
        self.commit(*actions)

    def restore(self, choice: int) -> None:
        there = self.times().keys()
        back = [add for add in self.gone if reads(add) <= there and decode_log_path(add.path).text not in self.live]
        if back:
            self.commit(back[choice % len(back)])

    def checkpoint(self, choice: int) -> None:
        self.yard.log.checkpoint(now_ms=self.yard.now_ms)
        if choice % 2:
            cleaned = self.yard.log.cleanup(self.yard.now_ms, retention_ms=(choice % 5) * 24 * HOUR_MS)
            self.oldest = max(self.oldest, cleaned.oldest_version or 0)

    def tell(self, choice: int) -> None:
        if all(add.deletion_vector is None for add in self.live.values()):
            publish(self.yard.log)
            self.told = set(self.live)

    def take_inventory(self, choice: int) -> None:
        times = self.times()
        self.list_of = pl.DataFrame(
            {"path": list(times), "length": [1] * len(times), "isDir": [False] * len(times),
             "modificationTime": list(times.values())},
            schema={"path": pl.String, "length": pl.Int64, "isDir": pl.Boolean, "modificationTime": pl.Int64},
        )  # fmt: skip

    def wait(self, choice: int) -> None:
        self.yard.now_ms += (1 + choice) * 7 * HOUR_MS

    # -- what is tested ------------------------------------------------------------------------------------------

    def vacuum(self, choice: int) -> None:
        hours = (0, 30, 168, 300)[choice % 4]
        mode = ("full", "lite", "inventory")[choice // 4 % 3]
        inventory = None
        if mode == "inventory":
            if self.list_of is None:
                return
            inventory = from_frame(self.list_of, encoded=False)
        before = self.times()
        cutoff = self.yard.now_ms - hours * HOUR_MS
        old = {path for path, at in before.items() if at < cutoff}
        may_go = old - self.needed(cutoff, unreadable_too=False)
        must_go = old - self.needed(cutoff, unreadable_too=True)
        clean = read_clean_version(self.yard.store)
        try:
            request = Vacuum(
                retention_hours=hours, enforce_retention=False,
                mode="full" if mode == "inventory" else mode, inventory=inventory,
            )  # fmt: skip
            result = vacuum(self.yard.log, request, now_ms=self.yard.now_ms)
        except CannotVacuumLiteError:
            assert self.oldest > (clean + 1 if clean is not None else 0)
            return
        deleted = before.keys() - self.times().keys()
        assert deleted <= may_go, deleted - may_go
        assert set(result.files["path"]) >= deleted
        if mode == "full":
            assert deleted >= must_go, must_go - deleted
        elif mode == "inventory":
            listed = set(self.list_of["path"])
            assert must_go & listed <= deleted <= listed
        else:
            first = 0 if clean is None else clean + 1
            removed = set()
            for version, (at, _, changes) in enumerate(self.versions):
                if version >= max(first, self.oldest) and at < cutoff:
                    before_it = self.versions[version - 1][1] if version else set()
                    removed |= changes | (before_it - self.versions[version][1])
            assert removed & must_go <= deleted
        self.catch_up()
        self.read_back()

    def catch_up(self) -> None:
        """VACUUM made versions of its own."""
        snapshot = self.yard.log.update()
        for version in range(self.yard.builder.version + 1, snapshot.version + 1):
            self.yard.backdate(f"_delta_log/{version:020}.json", age=0)
            self.note(set())
        self.yard.builder.version = snapshot.version

    def read_back(self) -> None:
        """The newest version reads as it did, its vectors too."""
        snapshot = self.yard.log.update()
        adds = snapshot.files.adds(snapshot.files.core)
        assert {decode_log_path(add.path).text for add in adds} == set(self.live) <= self.times().keys()
        vectors = [add.deletion_vector for add in adds if add.deletion_vector is not None]
        rows = read_deleted_rows(vectors, store=self.yard.store, root=self.yard.store.root, options=None)
        assert len(rows) == len(vectors)


STEPS = ("write", "begin", "finish", "remove", "rewrite", "hide", "restore", "checkpoint", "tell", "take_inventory")
step = st.tuples(st.sampled_from((*STEPS, "wait", "wait", "wait", "vacuum", "vacuum")), st.integers(0, 23))


@settings(max_examples=50, deadline=None)
@example([*[("write", 0)] * 5, ("write", 1), ("tell", 0), ("remove", 0)])  # an escape in a manifest's file
@given(st.lists(step, min_size=8, max_size=30))
def test_exactly_what_is_old_and_unneeded_goes(steps):
    yard = Yard(MemoryStore(f"memory://vacuummodel{next(_NAMES)}/t"), partition_columns=("p",))
    yard.builder.protocol = Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=FEATURES, writer_features=FEATURES
    )
    model = Model(yard)
    model.write(0)
    for name, choice in (*steps, ("wait", 23), ("vacuum", 1)):
        yard.now_ms += 60_000
        getattr(model, name)(choice)
