"""Report to an OpenLineage endpoint, if one is set, which jobs and commits wrote which tables (docs/guides/lineage.md).

::

    job begins --START--> job ends --COMPLETE or FAIL, with all its tables-->  OPENLINEAGE_URL
    commit inside a job --RUNNING--> with the table, its schema, version and rows
    commit outside a job --START, COMPLETE--> a separate run
"""

from pydelta.tools.lineage.runs import JobRun, emitter, job_run, note_input, note_table

__all__ = ["JobRun", "emitter", "job_run", "note_input", "note_table"]
