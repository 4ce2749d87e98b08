"""Tell an OpenLineage endpoint which jobs and commits wrote which tables, where one is set; see docs/guides/lineage.md.

::

    job begins --START--> job ends --COMPLETE or FAIL, with all its tables-->  OPENLINEAGE_URL
    commit inside a job --RUNNING--> with the table, its schema, version and rows
    commit outside one --START, COMPLETE--> a run of its own
"""

from pydelta.tools.lineage.runs import JobRun, emitter, job_run, note_input, note_table

__all__ = ["JobRun", "emitter", "job_run", "note_input", "note_table"]
