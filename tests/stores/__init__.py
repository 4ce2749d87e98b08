"""Certify stores one after another: ``python -m tests.stores`` keeps the results and draws docs/reference/stores.md."""

import sys
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
# The servers that other tests start are in these folders; pytest adds them by itself.
sys.path.extend(str(folder) for folder in (_TESTS, _TESTS / "minio", _TESTS / "hdfs") if str(folder) not in sys.path)
