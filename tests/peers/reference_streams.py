"""Takes the steps of a JSON file with the reference engine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from reference_session import scripts_session
from stream_steps import perform

perform(scripts_session(), json.loads(Path(sys.argv[1]).read_text()))
