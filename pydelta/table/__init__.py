"""Provide the Python API that Delta users know: ``DeltaTable`` and its builders."""
