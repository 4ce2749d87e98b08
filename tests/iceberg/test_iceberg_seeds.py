"""A few random histories; ``python -m tests.iceberg`` runs more of them, and longer ones."""

from __future__ import annotations

import pytest

from tests.iceberg.world import run_seed


@pytest.mark.parametrize("seed", range(4))
def test_readers_agree_after_each_step(tmp_path, seed):
    run_seed(tmp_path, seed, 12)
