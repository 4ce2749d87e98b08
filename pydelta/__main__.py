"""Run the command line: ``python -m pydelta``."""

from __future__ import annotations

from pydelta.api.cli.entry import main

if __name__ == "__main__":
    main()
