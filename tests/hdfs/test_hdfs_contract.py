"""What every store promises, on HDFS: the suite of tests/contracts as it is, with this folder's ``store``."""

from __future__ import annotations

import test_store

OF_WRAPPERS = ("lost_reply", "dead_store", "failing_call", "the_publishing_of_a_stream", "counting", "without_pages")
"""What they are about is around a store; one kind of store is enough for them."""

globals().update(
    {
        name: test
        for name, test in vars(test_store).items()
        if name.startswith("test_") and not any(words in name for words in OF_WRAPPERS)
    }
)
