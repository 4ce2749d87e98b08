"""Keep a third metastore entry of a table: Iceberg metadata over the same data files.

::

    log --publish_iceberg--> _pydelta/iceberg/metadata/vN.metadata.json
                                      |
    metastore entry <db>_iceberg.<table> --one conditional change of metadata_location--> vN, never backwards
"""
