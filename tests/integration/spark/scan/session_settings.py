"""Settings of a session for a part of a test."""

from __future__ import annotations

from contextlib import contextmanager


@contextmanager
def with_settings(spark, **settings):
    """Change settings, named without ``spark.sql.`` and with dots as underscores, and change them back."""
    named = {f"spark.sql.{name.replace('_', '.')}": value for name, value in settings.items()}
    before = {name: spark.conf.get(name) for name in named}
    try:
        for name, value in named.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
