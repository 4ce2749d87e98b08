"""Runs one job in an application of the name that is given, for ``scripts/test-stack-history``."""

import sys

import pydelta

spark = pydelta.session(sys.argv[1])
print(spark.range(1000).count())
spark.stop()
