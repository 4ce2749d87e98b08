"""Every input that ever broke the contract, and those made to break it, is run again: once for each target."""

from __future__ import annotations

import pytest

from tests.fuzz.parent import KEPT, kept_inputs, replay
from tests.fuzz.targets import TARGETS, target_of

WITH_INPUTS = sorted(folder.name for folder in KEPT.iterdir() if folder.is_dir())


def test_inputs_are_kept_for_targets_that_exist():
    assert len(WITH_INPUTS) > 5
    assert set(WITH_INPUTS) <= TARGETS.keys()


@pytest.mark.parametrize("name", WITH_INPUTS)
def test_what_broke_the_contract_once_keeps_it(name):
    paths = kept_inputs(name)
    verdicts = replay(name, paths)
    assert {path.name: verdict for path, verdict in zip(paths, verdicts, strict=True) if verdict} == {}


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_a_target_has_valid_inputs_to_begin_with(name):
    assert len(target_of(name).seeds()) > 0
