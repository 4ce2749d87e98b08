"""Run the command line: ``python -m pydelta``."""

from __future__ import annotations

from pydelta.ops.cli import main

if __name__ == "__main__":
    main()
