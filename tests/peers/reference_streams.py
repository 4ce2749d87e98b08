"""Takes the steps of a JSON file with the reference engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from reference_session import spark
from stream_steps import perform

perform(spark, json.loads(Path(sys.argv[1]).read_text()))
