"""Run ``pydelta`` from the command line."""
