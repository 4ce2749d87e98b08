"""What every store promises, on HDFS: the suite of tests/contracts as it is, with this folder's ``store``."""

from __future__ import annotations

import test_store

globals().update({name: test for name, test in vars(test_store).items() if name.startswith("test_")})
