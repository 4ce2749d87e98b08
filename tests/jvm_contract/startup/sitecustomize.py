"""Record the calls into the JVM of every Python process that starts with this folder on its path."""

from __future__ import annotations

import os
import sys
from pathlib import Path

if os.environ.get("JVM_CALLS"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from jvm_contract.recording import start

    start(os.environ["JVM_CALLS"])
    sys.path.pop(0)
