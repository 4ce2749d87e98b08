"""Run the command line: ``python -m pydelta``."""

from __future__ import annotations

from pydelta.ops.entry import main

if __name__ == "__main__":
    main()
