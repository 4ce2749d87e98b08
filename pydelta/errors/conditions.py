"""Name the conditions of errors, each with its SQLSTATE, so that programs can branch on them.

::

    Condition.of("DELTA_…", columnName=…)   a condition with its parameters, as part of an error
    sql_state("DELTA_…")                    its SQLSTATE
    CONDITIONS                              every condition that this package raises
    said(condition, "…")                    a message with the phrase that programs look for in it

If Delta or Spark has a name for a situation, that name is the condition, with its SQLSTATE and parameters. A condition
of Spark's that is only passed on need not be here. ``docs/reference/conditions.md`` is generated from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

__all__ = ["CONDITIONS", "PHRASES", "Condition", "addressed", "said", "sql_state"]

_BY_STATE: Final = {
    "08003": "DELTA_ACTIVE_SPARK_SESSION_NOT_FOUND",
    "0A000": """
        DELTA_ADD_CONSTRAINTS
        DELTA_CANNOT_WRITE_INTO_VIEW
        DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED
        DELTA_CLUSTERING_WITH_PARTITION_PREDICATE
        DELTA_SOURCE_IGNORE_DELETE
        DELTA_SOURCE_TABLE_IGNORE_CHANGES
        DELTA_UNSUPPORTED_GENERATE_WITH_DELETION_VECTORS
        INVALID_PARTITION_COLUMN_DATA_TYPE
        NOT_SUPPORTED_CHANGE_COLUMN
        UNSUPPORTED_FEATURE.INSERT_PARTITION_SPEC_IF_NOT_EXISTS
        UNSUPPORTED_FEATURE.TABLE_OPERATION
        UNSUPPORTED_FEATURE.TIME_TRAVEL
    """,
    "0AKDC": """
        DELTA_CHANGELOG_UNSUPPORTED_OPTION
        DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE
        DELTA_CLONE_UNSUPPORTED_SOURCE
        DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_PARTITIONED_COLUMN
        DELTA_COLUMN_DATA_SKIPPING_NOT_SUPPORTED_TYPE
        DELTA_CONVERT_NON_PARQUET_TABLE
        DELTA_CREATE_TABLE_IDENTIFIER_LOCATION_MISMATCH
        DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA
        DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE
        DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE
        DELTA_GEOSPATIAL_NOT_SUPPORTED
        DELTA_MODE_NOT_SUPPORTED
        DELTA_NESTED_NOT_NULL_CONSTRAINT
        DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED
        DELTA_OPERATION_NOT_ALLOWED
        DELTA_OPERATION_NOT_ALLOWED_DETAIL
        DELTA_TRUNCATE_TABLE_PARTITION_NOT_SUPPORTED
        DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP
        DELTA_UNSUPPORTED_ALTER_TABLE_REPLACE_COL_OP
        DELTA_UNSUPPORTED_CLONE_REPLACE_SAME_TABLE
        DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE
        DELTA_UNSUPPORTED_COMMENT_MAP_ARRAY
        DELTA_UNSUPPORTED_DATA_TYPES
        DELTA_UNSUPPORTED_DROP_CLUSTERING_COLUMN
        DELTA_UNSUPPORTED_DROP_COLUMN
        DELTA_UNSUPPORTED_DROP_NESTED_COLUMN_FROM_NON_STRUCT_TYPE
        DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN
        DELTA_UNSUPPORTED_MANIFEST_GENERATION_WITH_COLUMN_MAPPING
        DELTA_UNSUPPORTED_OUTPUT_MODE
        DELTA_UNSUPPORTED_RENAME_COLUMN
        DELTA_UNSUPPORTED_SCHEMA_DURING_READ
        DELTA_UNSUPPORTED_SUBQUERY
        DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS
        DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA
        WRONG_COLUMN_DEFAULTS_FOR_DELTA_ALTER_TABLE_ADD_COLUMN_NOT_SUPPORTED
    """,
    "0AKDD": "DELTA_NOT_A_DELTA_TABLE DELTA_ONLY_OPERATION DELTA_TABLE_ONLY_OPERATION",
    "0AKDE": "DELTA_DATA_CHANGE_FALSE DELTA_UNSUPPORTED_FEATURE_STATUS",
    "21506": "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE",
    "22000": """
        DELTA_CLUSTERING_COLUMN_MISSING_STATS
        DELTA_ROW_ID_ASSIGNMENT_WITHOUT_STATS
        DELTA_STREAMING_METADATA_EVOLUTION
        DELTA_STREAMING_SCHEMA_LOCATION_CONFLICT
        DELTA_STREAMING_SCHEMA_LOCATION_NOT_UNDER_CHECKPOINT
        DELTA_STREAMING_SCHEMA_LOG_DESERIALIZE_FAILED
        DELTA_STREAMING_SCHEMA_LOG_INCOMPATIBLE_DELTA_TABLE_ID
        DELTA_STREAMING_SCHEMA_LOG_INIT_FAILED_INCOMPATIBLE_METADATA
    """,
    "22001": "DELTA_EXCEED_CHAR_VARCHAR_LIMIT",
    "22003": """
        DELTA_CANNOT_RESTORE_TABLE_VERSION
        DELTA_CANNOT_RESTORE_TIMESTAMP_EARLIER
        DELTA_CANNOT_RESTORE_TIMESTAMP_GREATER
        DELTA_CAST_OVERFLOW_IN_TABLE_WRITE
        DELTA_CDC_START_VERSION_AFTER_LATEST
        DELTA_INVALID_CDC_RANGE
        DELTA_VACUUM_RETENTION_PERIOD_NEGATIVE
        DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT
        DELTA_VERSION_NOT_FOUND
    """,
    "22004": "DELTA_CDC_READ_NULL_RANGE_BOUNDARY",
    "22005": "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE DELTA_FAILED_TO_MERGE_FIELDS",
    "22006": "DELTA_INVALID_INTERVAL",
    "22018": "DELTA_FAILED_CAST_PARTITION_VALUE",
    "22023": "DELTA_INVALID_ARGUMENT DELTA_INVALID_PROPERTY_VALUE DELTA_INVENTORY_UNUSABLE",
    "22525": "DELTA_PARTITION_COLUMN_CAST_FAILED",
    "22KD0": """
        DELTA_FEATURE_DROP_CHECKPOINT_PROTECTION_WAIT_FOR_RETENTION_PERIOD
        DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST
        DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD
    """,
    "23001": "DELTA_VIOLATE_CONSTRAINT DELTA_VIOLATE_CONSTRAINT_WITH_VALUES",
    "23502": "DELTA_MISSING_NOT_NULL_COLUMN_VALUE DELTA_NOT_NULL_CONSTRAINT_VIOLATED",
    "23512": "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION DELTA_NEW_NOT_NULL_VIOLATION",
    "25000": "DELTA_INVALID_ISOLATION_LEVEL",
    "25006": "DELTA_STORAGE_READ_ONLY",
    "2D521": """
        DELTA_CONCURRENT_APPEND.WITHOUT_HINT
        DELTA_CONCURRENT_DELETE_DELETE.WITHOUT_HINT
        DELTA_CONCURRENT_DELETE_READ.WITHOUT_HINT
        DELTA_CONCURRENT_MODIFICATION
        DELTA_CONCURRENT_TRANSACTION
        DELTA_CONCURRENT_WRITE
        DELTA_DUPLICATE_ACTIONS_FOUND
        DELTA_METADATA_CHANGED
        DELTA_PROTOCOL_CHANGED
    """,
    "40000": "DELTA_COMMIT_ERROR",
    "40003": "DELTA_COMMITTED DELTA_COMMIT_STATE_UNKNOWN",
    "42000": """
        DELTA_DFV2_CREATE_REPLACE_INCOMPATIBLE_REPLACE_ON_OR_USING
        DELTA_ALTER_TABLE_SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED
        DELTA_CREATE_TABLE_SET_CLUSTERING_TABLE_FEATURE_NOT_ALLOWED
        DELTA_ALTER_TABLE_CLUSTER_BY_ON_PARTITIONED_TABLE_NOT_ALLOWED
        DELTA_CLUSTERING_REPLACE_TABLE_WITH_PARTITIONED_TABLE
        DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT
        DELTA_FEATURE_DROP_HISTORY_TRUNCATION_NOT_ALLOWED
        DELTA_INVALID_INVENTORY_SCHEMA
        DELTA_SCHEMA_ERROR
        DELTA_SQL_ERROR
        INVALID_FIELD_NAME
        INVALID_SAVE_MODE
        NON_PARTITION_COLUMN
    """,
    "42501": "DELTA_ACCESS_DENIED DELTA_STORAGE_PERMISSION_DENIED",
    "42601": """
        DELTA_FAILED_RECOGNIZE_PREDICATE
        SORT_BY_WITHOUT_BUCKETING
        DELTA_CREATE_TABLE_MISSING_TABLE_NAME_OR_LOCATION
        DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION
        DELTA_IDENTITY_COLUMNS_PARTITION_NOT_SUPPORTED
        DELTA_ILLEGAL_USAGE
        DELTA_MERGE_MISSING_WHEN
        DELTA_MERGE_UNRESOLVED_EXPRESSION
        DELTA_NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION
        DELTA_NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION
        DELTA_NON_LAST_NOT_MATCHED_CLAUSE_OMIT_CONDITION
        DELTA_NO_START_FOR_CDC_READ
        DELTA_ONEOF_IN_TIMETRAVEL
        DELTA_OPTIMIZE_FULL_NOT_SUPPORTED
        DELTA_PARSE_ERROR
        DELTA_PATH_NOT_SPECIFIED
        INVALID_PARTITION_OPERATION.PARTITION_MANAGEMENT_IS_UNSUPPORTED
        PARSE_SYNTAX_ERROR
        PARTITION_BY_NOT_ALLOWED_WITH_INSERT_INTO
    """,
    "42602": "INVALID_SCHEMA_OR_RELATION_NAME",
    "42604": "DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE",
    "42608": "NO_DEFAULT_COLUMN_VALUE_AVAILABLE",
    "42611": "DELTA_IDENTITY_COLUMNS_ILLEGAL_STEP",
    "42613": """
        DELTA_AMBIGUOUS_PATHS_IN_CREATE_TABLE
        DELTA_CLUSTERING_WITH_ZORDER_BY
        DELTA_CLUSTER_BY_WITH_PARTITIONED_BY
        DELTA_IDENTITY_COLUMNS_WITH_GENERATED_EXPRESSION
        DELTA_INCOMPATIBLE_DATAFRAME_OPTIONS
        DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE
        DELTA_REPLACE_WHERE_IN_OVERWRITE
        DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE
        DELTA_TABLE_LOCATION_MISMATCH
        DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS
    """,
    "42614": "DELTA_MULTIPLE_CDC_BOUNDARY",
    "42616": "DELTA_ILLEGAL_OPTION DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS",
    "42621": """
        DELTA_NON_BOOLEAN_CHECK_CONSTRAINT
        DELTA_NON_DETERMINISTIC_EXPRESSION_IN_CHECK_CONSTRAINT
        DELTA_UDF_IN_CHECK_CONSTRAINT
        DELTA_UDF_IN_GENERATED_COLUMN
        DELTA_UNSUPPORTED_EXPRESSION_CHECK_CONSTRAINT
        UNSUPPORTED_EXPRESSION_GENERATED_COLUMN
    """,
    "42623": "INVALID_DEFAULT_VALUE.DATA_TYPE INVALID_DEFAULT_VALUE.NOT_CONSTANT",
    "42701": "DELTA_CONFLICT_SET_COLUMN DELTA_DUPLICATE_COLUMNS_ON_INSERT DELTA_DUPLICATE_DATA_SKIPPING_COLUMNS",
    "42703": """
        DELTA_COLUMN_NOT_FOUND_IN_SCHEMA
        DELTA_PARTITION_COLUMN_NOT_FOUND
        DELTA_UNRESOLVED_COLUMN
        DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST
        UNRESOLVED_COLUMN.WITH_SUGGESTION
        UNRESOLVED_INSERT_REPLACE_USING_COLUMN
    """,
    "42704": "AMBIGUOUS_REFERENCE DELTA_CONSTRAINT_DOES_NOT_EXIST FIELD_NOT_FOUND SCHEMA_NOT_FOUND",
    "42710": "DELTA_CONSTRAINT_ALREADY_EXISTS FIELD_ALREADY_EXISTS",
    "42713": "STATIC_PARTITION_COLUMN_IN_INSERT_COLUMN_LIST",
    "42711": """
        COLUMN_ALREADY_EXISTS
        DELTA_DUPLICATE_COLUMNS_FOUND.CLUSTER_BY
        DELTA_DUPLICATE_COLUMNS_FOUND.DATA
        DELTA_DUPLICATE_COLUMNS_FOUND.PARTITION_COLUMNS
        DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS
    """,
    "42802": """
        DELTA_INSERT_COLUMN_ARITY_MISMATCH
        DELTA_INSERT_COLUMN_MISMATCH
        INSERT_REPLACE_USING_DISALLOW_MISALIGNED_COLUMNS
    """,
    "42808": """
        DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED
        DELTA_IDENTITY_COLUMNS_UPDATE_NOT_SUPPORTED
    """,
    "42809": """
        DELTA_CANNOT_MODIFY_APPEND_ONLY
        DELTA_SHOW_PARTITION_IN_NON_PARTITIONED_TABLE
        EXPECT_TABLE_NOT_VIEW.NO_ALTERNATIVE
    """,
    "42815": "DELTA_VERSION_INVALID",
    "42816": """
        DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION
        DELTA_TIMESTAMP_GREATER_THAN_COMMIT
        DELTA_TIMESTAMP_INVALID
    """,
    "42846": "DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION",
    "428FT": "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION",
    "428GU": """
        DELTA_CANNOT_WRITE_EMPTY_SCHEMA.TABLE_ALL_VOID_COLUMNS
        DELTA_EMPTY_DATA
        DELTA_READ_TABLE_WITHOUT_COLUMNS
    """,
    "428H2": "DELTA_IDENTITY_COLUMNS_UNSUPPORTED_DATA_TYPE",
    "42908": "DELTA_SCHEMA_NOT_PROVIDED",
    "42939": "DELTA_CANNOT_MODIFY_TABLE_PROPERTY DELTA_INVALID_CONSTRAINT_NAME",
    "42903": "DELTA_AGGREGATION_NOT_SUPPORTED",
    "429BQ": "DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED DELTA_IDENTITY_COLUMNS_ALTER_NON_IDENTITY_COLUMN",
    "42K03": """
        DELTA_MISSING_FILES_UNEXPECTED_VERSION
        DELTA_CREATE_EXTERNAL_TABLE_WITHOUT_TXN_LOG
        DELTA_EMPTY_DIRECTORY
        DELTA_FILE_NOT_FOUND
        PATH_NOT_FOUND
    """,
    "42K04": "DELTA_PATH_EXISTS",
    "42K05": "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING",
    "42K06": "DELTA_PROTOCOL_PROPERTY_NOT_INT",
    "42K09": """
        DELTA_CONSTRAINT_DATA_TYPE_MISMATCH
        DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE
        DELTA_GENERATED_COLUMNS_DATA_TYPE_MISMATCH
        DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE
        DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH
    """,
    "42K0E": """
        INVALID_NON_DETERMINISTIC_EXPRESSIONS
        INVALID_TIME_TRAVEL_SPEC
        INVALID_TIME_TRAVEL_TIMESTAMP_EXPR.INPUT
        UNSUPPORTED_EXPR_FOR_OPERATOR
        UNSUPPORTED_GENERATOR.OUTSIDE_SELECT
    """,
    "42KD7": """
        DELTA_CREATE_TABLE_SCHEME_MISMATCH
        DELTA_CREATE_TABLE_WITH_DIFFERENT_CLUSTERING
        DELTA_CREATE_TABLE_WITH_DIFFERENT_PARTITIONING
        DELTA_CREATE_TABLE_WITH_DIFFERENT_PROPERTY
        DELTA_SET_LOCATION_SCHEMA_MISMATCH
    """,
    "42KDA": "DELTA_FAILED_MERGE_SCHEMA_FILE",
    "42KDE": """
        STREAMING_QUERY_EVOLUTION_ERROR.DUPLICATE_SOURCE_NAMES
        STREAMING_QUERY_EVOLUTION_ERROR.SOURCE_NAMING_NOT_SUPPORTED
        STREAMING_QUERY_EVOLUTION_ERROR.UNNAMED_STREAMING_SOURCES_WITH_ENFORCEMENT
    """,
    "42KDG": "DELTA_METADATA_MISMATCH DELTA_SCHEMA_MISMATCH",
    "42P01": "DELTA_MISSING_DELTA_TABLE DELTA_TABLE_NOT_FOUND TABLE_OR_VIEW_NOT_FOUND",
    "42P07": "DELTA_TABLE_ALREADY_EXISTS TABLE_OR_VIEW_ALREADY_EXISTS",
    "42P10": """
        DELTA_CLUSTERING_COLUMNS_MISMATCH
        DELTA_NON_PARTITION_COLUMN_REFERENCE
        DELTA_NON_PARTITION_COLUMN_SPECIFIED
        DELTA_SHOW_PARTITION_IN_NON_PARTITIONED_COLUMN
        DELTA_ZORDERING_ON_PARTITION_COLUMN
    """,
    "44000": "DELTA_REPLACE_WHERE_MISMATCH",
    "53100": "DELTA_STORAGE_FULL",
    "54000": "DELTA_CLUSTER_BY_INVALID_NUM_COLUMNS",
    "55000": """
        DELTA_ROW_TRACKING_ILLEGAL_PROPERTY_COMBINATION
        DELTA_CANNOT_VACUUM_LITE
        DELTA_FEATURE_DROP_DEPENDENT_FEATURE
        DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT
        DELTA_UNSAFE_OPERATION
    """,
    "56038": """
        CODEC_NOT_AVAILABLE.WITH_AVAILABLE_CODECS_SUGGESTION
        DELTA_ENVIRONMENT
        DELTA_UNSUPPORTED_FEATURES
        DELTA_UNSUPPORTED_FEATURES_FOR_READ
        DELTA_UNSUPPORTED_FEATURES_FOR_WRITE
        DELTA_UNSUPPORTED_FEATURES_IN_CONFIG
    """,
    "55019": "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
    "58000": "DELTA_CATALOG_SYNC DELTA_STREAM_STOPPED DELTA_UNSAFE_STORE",
    "58030": "DELTA_STORAGE_ERROR",
    "F0000": "DELTA_UNKNOWN_CONFIGURATION",
    "KD001": "DELTA_FAILED_READ_FILE_FOOTER",
    "42KD4": "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE_USE_SCHEMA_LOG",
    "KD002": "DELTA_MISSING_CHANGE_DATA DELTA_STREAMING_CANNOT_CONTINUE_PROCESSING_POST_SCHEMA_EVOLUTION",
    "KD004": "DELTA_INVALID_PROTOCOL_VERSION DELTA_PROTOCOL_ERROR DELTA_READ_FEATURE_PROTOCOL_REQUIRES_WRITE",
    "KD005": "ALL_PARTITION_COLUMNS_NOT_ALLOWED DELTA_NON_PARTITION_COLUMN_ABSENT",
    "KD006": "DELTA_NO_RECREATABLE_HISTORY_FOUND",
    "KD009": """
        DELTA_UNEXPECTED_NUM_PARTITION_COLUMNS_FROM_FILE_NAME
        DELTA_UNEXPECTED_PARTITION_COLUMN_FROM_FILE_NAME
    """,
    "KD00C": "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "KD00D": "DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS",
    "KD00E": """
        DELTA_ICEBERG_COMPAT_VIOLATION.COMPAT_VERSION_NOT_SUPPORTED
        DELTA_ICEBERG_COMPAT_VIOLATION.DELETION_VECTORS_NOT_PURGED
        DELTA_ICEBERG_COMPAT_VIOLATION.DELETION_VECTORS_SHOULD_BE_DISABLED
        DELTA_ICEBERG_COMPAT_VIOLATION.FILES_NOT_ICEBERG_COMPAT
        DELTA_ICEBERG_COMPAT_VIOLATION.INCOMPATIBLE_TABLE_FEATURE
        DELTA_ICEBERG_COMPAT_VIOLATION.REPLACE_TABLE_CHANGE_PARTITION_NAMES
        DELTA_ICEBERG_COMPAT_VIOLATION.REWRITE_DATA_FAILED
        DELTA_ICEBERG_COMPAT_VIOLATION.UNSUPPORTED_DATA_TYPE
        DELTA_ICEBERG_COMPAT_VIOLATION.UNSUPPORTED_TYPE_WIDENING
        DELTA_ICEBERG_COMPAT_VIOLATION.VERSION_MUTUAL_EXCLUSIVE
        DELTA_ICEBERG_COMPAT_VIOLATION.WRONG_REQUIRED_TABLE_PROPERTY
    """,
    "KD007": """
        DELTA_SCHEMA_CHANGED_WITH_VERSION
        DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS
        DELTA_STREAMING_SCHEMA_MISMATCH_ON_RESTART
    """,
    "XXKDS": """
        DELTA_ERROR
        DELTA_INVALID_PARTITIONING_SCHEMA
        DELTA_LOG_CORRUPTED
        DELTA_REMOVE_FILE_CDC_MISSING_EXTENDED_METADATA
        DELTA_ROWS_DO_NOT_ADD_UP
        DELTA_STATE_RECOVER_ERROR
    """,
}

PHRASES: Final[Mapping[str, str]] = {
    "DELTA_ACTIVE_SPARK_SESSION_NOT_FOUND": "Could not find active SparkSession",
    "DELTA_ADD_CONSTRAINTS": "use ALTER TABLE ADD CONSTRAINT",
    "DELTA_AGGREGATION_NOT_SUPPORTED": "Aggregate functions are not supported",
    "DELTA_ALTER_TABLE_CLUSTER_BY_ON_PARTITIONED_TABLE_NOT_ALLOWED": "cannot be applied to a partitioned table",
    "DELTA_AMBIGUOUS_PATHS_IN_CREATE_TABLE": "contains two different locations",
    "DELTA_CANNOT_MODIFY_APPEND_ONLY": "This table is configured to only allow appends",
    "DELTA_CANNOT_MODIFY_TABLE_PROPERTY": "cannot be specified by the user",
    "DELTA_CANNOT_RESTORE_TABLE_VERSION": "Cannot restore table to version {version}",
    "DELTA_CANNOT_RESTORE_TIMESTAMP_EARLIER": "before the earliest version available",
    "DELTA_CANNOT_RESTORE_TIMESTAMP_GREATER": "after the latest version available",
    "DELTA_CANNOT_USE_ALL_COLUMNS_FOR_PARTITION": "Cannot use all columns for partition columns",
    "DELTA_CANNOT_VACUUM_LITE": "VACUUM LITE cannot delete all eligible files as some files",
    "DELTA_CANNOT_WRITE_INTO_VIEW": "Writes to a view are not supported",
    "DELTA_CDC_START_VERSION_AFTER_LATEST": "exceeds the latest table version",
    "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE_SCHEMA_CHANGE": "incompatible schema change",
    "DELTA_CLUSTERING_COLUMNS_DATATYPE_NOT_SUPPORTED": "don't support data skipping",
    "DELTA_CLUSTERING_COLUMNS_MISMATCH": "clustering columns do not match the existing table's",
    "DELTA_CLUSTERING_COLUMN_MISSING_STATS": "Clustering requires clustering columns to have stats",
    "DELTA_CLUSTERING_REPLACE_TABLE_WITH_PARTITIONED_TABLE": "with a partitioned table",
    "DELTA_CLUSTERING_WITH_PARTITION_PREDICATE": "doesn't support partition predicates",
    "DELTA_CLUSTERING_WITH_ZORDER_BY": "cannot specify ZORDER BY",
    "DELTA_CLUSTER_BY_INVALID_NUM_COLUMNS": "CLUSTER BY supports up to",
    "DELTA_CLUSTER_BY_WITH_PARTITIONED_BY": "Clustering and partitioning cannot both be specified",
    "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA": "Couldn't find column",
    "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE": "Found nested NullType",
    "DELTA_CONCURRENT_APPEND.WITHOUT_HINT": "Transaction conflict detected",
    "DELTA_CONCURRENT_DELETE_DELETE.WITHOUT_HINT": "Transaction conflict detected",
    "DELTA_CONCURRENT_DELETE_READ.WITHOUT_HINT": "Transaction conflict detected",
    "DELTA_CONCURRENT_TRANSACTION": "ConcurrentTransactionException",
    "DELTA_CONCURRENT_WRITE": "A concurrent transaction has written new data",
    "DELTA_CONFLICT_SET_COLUMN": "There is a conflict from these SET columns",
    "DELTA_CONSTRAINT_ALREADY_EXISTS": "already exists",
    "DELTA_CONSTRAINT_DATA_TYPE_MISMATCH": "referenced by the following check constraint(s)",
    "DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE": "referenced by the following check constraint(s)",
    "DELTA_CONSTRAINT_DOES_NOT_EXIST": "Cannot drop nonexistent constraint",
    "DELTA_CONVERT_NON_PARQUET_TABLE": "only supports parquet tables",
    "DELTA_CREATE_EXTERNAL_TABLE_WITHOUT_TXN_LOG": "there is no transaction log present",
    "DELTA_CREATE_TABLE_MISSING_TABLE_NAME_OR_LOCATION": "Table name or location has to be specified",
    "DELTA_CREATE_TABLE_SCHEME_MISMATCH": "The specified schema does not match the existing schema",
    "DELTA_CREATE_TABLE_WITH_DIFFERENT_CLUSTERING": "do not match the existing clustering columns",
    "DELTA_CREATE_TABLE_WITH_DIFFERENT_PROPERTY": "The specified properties do not match the existing properties",
    "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION": "is not empty and also not a Delta table",
    "DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA": "Cannot drop column from a schema with a single column",
    "DELTA_DUPLICATE_COLUMNS_FOUND.CLUSTER_BY": "Found duplicate column(s)",
    "DELTA_DUPLICATE_COLUMNS_FOUND.DATA": "Found duplicate column(s)",
    "DELTA_DUPLICATE_COLUMNS_FOUND.PARTITION_COLUMNS": "Found duplicate column(s)",
    "DELTA_DUPLICATE_COLUMNS_ON_INSERT": "Duplicate column names in INSERT clause",
    "DELTA_EMPTY_DATA": "doesn't have any columns",
    "DELTA_EMPTY_DIRECTORY": "No file found in the directory",
    "DELTA_EXCEED_CHAR_VARCHAR_LIMIT": "exceeds char/varchar type length limitation",
    "DELTA_FAILED_CAST_PARTITION_VALUE": "Failed to cast partition value",
    "DELTA_FAILED_MERGE_SCHEMA_FILE": "Failed to merge schema of file",
    "DELTA_FAILED_READ_FILE_FOOTER": "Could not read footer for file",
    "DELTA_FAILED_RECOGNIZE_PREDICATE": "Cannot recognize the predicate",
    "DELTA_FAILED_TO_MERGE_FIELDS": "Failed to merge fields",
    "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT": "not currently present in the table's protocol",
    "DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST": "contains historical versions that use the feature",
    "DELTA_FEATURE_DROP_HISTORY_TRUNCATION_NOT_ALLOWED": "does not require history truncation",
    "DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE": "dropping this feature is not supported",
    "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE": "not supported by this Delta version",
    "DELTA_GENERATED_COLUMNS_DATA_TYPE_MISMATCH": "referenced by the following generated column(s)",
    "DELTA_GENERATED_COLUMNS_DEPENDENT_COLUMN_CHANGE": "referenced by the following generated column(s)",
    "DELTA_GENERATED_COLUMNS_EXPR_TYPE_MISMATCH": "The expression type of the generated column",
    "DELTA_IDENTITY_COLUMNS_ALTER_COLUMN_NOT_SUPPORTED": "is not supported for IDENTITY columns",
    "DELTA_IDENTITY_COLUMNS_ALTER_NON_IDENTITY_COLUMN": "cannot be called on non IDENTITY columns",
    "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED": "Providing values for GENERATED ALWAYS AS IDENTITY",
    "DELTA_IDENTITY_COLUMNS_ILLEGAL_STEP": "IDENTITY column step cannot be 0",
    "DELTA_IDENTITY_COLUMNS_PARTITION_NOT_SUPPORTED": "PARTITIONED BY IDENTITY column",
    "DELTA_IDENTITY_COLUMNS_UNSUPPORTED_DATA_TYPE": "is not supported for IDENTITY columns",
    "DELTA_IDENTITY_COLUMNS_UPDATE_NOT_SUPPORTED": "UPDATE on IDENTITY column",
    "DELTA_IDENTITY_COLUMNS_WITH_GENERATED_EXPRESSION": "cannot be specified with a generated column expression",
    "DELTA_ILLEGAL_OPTION": "Invalid value '{input}' for option '{name}'",
    "DELTA_INCOMPATIBLE_DATAFRAME_OPTIONS": "cannot be used with the",
    "DELTA_INSERT_COLUMN_ARITY_MISMATCH": "but the inserted data has",
    "DELTA_INSERT_COLUMN_MISMATCH": "is not specified in INSERT",
    "DELTA_INVALID_CDC_RANGE": "End cannot be before start",
    "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES": "Found invalid character(s)",
    "DELTA_INVALID_COLUMN_NAMES_WHEN_REMOVING_COLUMN_MAPPING": "Found invalid character(s)",
    "DELTA_INVALID_CONSTRAINT_NAME": "This name is reserved",
    "DELTA_INVALID_IDEMPOTENT_WRITES_OPTIONS": "Invalid options for idempotent DataFrame writes",
    "DELTA_INVALID_INTERVAL": "is not a valid INTERVAL",
    "DELTA_INVALID_INVENTORY_SCHEMA": "does not contain all of the required fields",
    "DELTA_INVALID_ISOLATION_LEVEL": "invalid isolation level",
    "DELTA_INVALID_PROTOCOL_VERSION": "Unsupported Delta protocol version",
    "DELTA_MERGE_MISSING_WHEN": "There must be at least one WHEN clause",
    "DELTA_MERGE_UNRESOLVED_EXPRESSION": "Cannot resolve",
    "DELTA_METADATA_CHANGED": "has been changed by a concurrent update",
    "DELTA_METADATA_MISMATCH": "A metadata mismatch was detected",
    "DELTA_MISSING_CHANGE_DATA": "change data was not recorded",
    "DELTA_MISSING_DELTA_TABLE": "is not a Delta table",
    "DELTA_MISSING_NOT_NULL_COLUMN_VALUE": "is missing from the data being written into the table",
    "DELTA_MODE_NOT_SUPPORTED": "Specified mode '{mode}' is not supported",
    "DELTA_MULTIPLE_CDC_BOUNDARY": "arguments provided for CDC read",
    "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE": "multiple source rows matched",
    "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION": "violate the new CHECK constraint",
    "DELTA_NEW_NOT_NULL_VIOLATION": "violate the new NOT NULL constraint",
    "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT": "should be a boolean expression",
    "DELTA_NON_DETERMINISTIC_EXPRESSION_IN_CHECK_CONSTRAINT": "cannot use a nondeterministic expression",
    "DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED": "Non-deterministic functions are not supported",
    "DELTA_NON_LAST_MATCHED_CLAUSE_OMIT_CONDITION": "only the last MATCHED clause can omit the condition",
    "DELTA_NON_LAST_NOT_MATCHED_BY_SOURCE_CLAUSE_OMIT_CONDITION": (
        "only the last NOT MATCHED BY SOURCE clause can omit the condition"
    ),
    "DELTA_NON_LAST_NOT_MATCHED_CLAUSE_OMIT_CONDITION": "only the last NOT MATCHED clause can omit the condition",
    "DELTA_NON_PARTITION_COLUMN_ABSENT": "needs to contain at least one non-partitioned column",
    "DELTA_NON_PARTITION_COLUMN_REFERENCE": (
        "Predicate references non-partition column '{columnName}'. "
        "Only the partition columns may be referenced: [{columnList}]"
    ),
    "DELTA_NON_PARTITION_COLUMN_SPECIFIED": "Non-partitioning column(s)",
    "DELTA_NOT_A_DELTA_TABLE": "is not a Delta table",
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED": "NOT NULL constraint violated for column",
    "DELTA_NO_RECREATABLE_HISTORY_FOUND": "No recreatable commits found",
    "DELTA_NO_START_FOR_CDC_READ": "No startingVersion or startingTimestamp provided",
    "DELTA_ONEOF_IN_TIMETRAVEL": "either provide 'timestampAsOf' or 'versionAsOf'",
    "DELTA_ONLY_OPERATION": "is only supported for Delta tables",
    "DELTA_OPERATION_NOT_ALLOWED": "Operation not allowed",
    "DELTA_OPERATION_NOT_ALLOWED_DETAIL": "Operation not allowed",
    "DELTA_OPTIMIZE_FULL_NOT_SUPPORTED": "only supported for clustered tables",
    "DELTA_OVERWRITE_SCHEMA_WITH_DYNAMIC_PARTITION_OVERWRITE": (
        "'overwriteSchema' cannot be used in dynamic partition overwrite mode"
    ),
    "DELTA_PARTITION_COLUMN_NOT_FOUND": "not found in schema",
    "DELTA_PATH_EXISTS": "already existent path",
    "DELTA_PATH_NOT_SPECIFIED": "'path' is not specified",
    "DELTA_PROTOCOL_CHANGED": "has been changed by a concurrent update",
    "DELTA_PROTOCOL_PROPERTY_NOT_INT": "needs to be an integer",
    "DELTA_READ_TABLE_WITHOUT_COLUMNS": "does not have any columns",
    "DELTA_REPLACE_WHERE_IN_OVERWRITE": "replaceWhere in conjunction with an overwrite",
    "DELTA_REPLACE_WHERE_MISMATCH": "does not conform to partial table overwrite condition",
    "DELTA_REPLACE_WHERE_WITH_DYNAMIC_PARTITION_OVERWRITE": "cannot both be set",
    "DELTA_SCHEMA_CHANGED_WITH_VERSION": "Detected schema change",
    "DELTA_SET_LOCATION_SCHEMA_MISMATCH": "is different than the current table schema",
    "DELTA_SHOW_PARTITION_IN_NON_PARTITIONED_COLUMN": "Non-partitioning column(s)",
    "DELTA_SHOW_PARTITION_IN_NON_PARTITIONED_TABLE": "not allowed on a table that is not partitioned",
    "DELTA_SOURCE_IGNORE_DELETE": "Detected deleted data",
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES": "Detected a data update",
    "DELTA_TABLE_ALREADY_CONTAINS_CDC_COLUMNS": "already contains reserved columns",
    "DELTA_TABLE_ALREADY_EXISTS": "already exists",
    "DELTA_TABLE_LOCATION_MISMATCH": "doesn't match the specified location",
    "DELTA_TABLE_NOT_FOUND": "doesn't exist",
    "DELTA_TABLE_ONLY_OPERATION": "is not a Delta table",
    "DELTA_TIMESTAMP_EARLIER_THAN_COMMIT_RETENTION": "before the earliest version available",
    "DELTA_TIMESTAMP_GREATER_THAN_COMMIT": "after the table's latest version",
    "DELTA_TIMESTAMP_INVALID": "The provided timestamp ({expr}) cannot be converted to a valid timestamp",
    "DELTA_TIME_TRAVEL_INVALID_BEGIN_VALUE": "needs to be a valid begin value",
    "DELTA_UDF_IN_CHECK_CONSTRAINT": "cannot use a user-defined function",
    "DELTA_UDF_IN_GENERATED_COLUMN": "cannot use a user-defined function",
    "DELTA_UNKNOWN_CONFIGURATION": "Unknown configuration was specified",
    "DELTA_UNSUPPORTED_COLUMN_MAPPING_MODE_CHANGE": "Changing column mapping mode from",
    "DELTA_UNSUPPORTED_DATA_TYPES": "Found columns using unsupported data types",
    "DELTA_UNSUPPORTED_DROP_CLUSTERING_COLUMN": "Dropping clustering columns",
    "DELTA_UNSUPPORTED_DROP_COLUMN": "DROP COLUMN is not supported",
    "DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN": "Dropping partition columns",
    "DELTA_UNSUPPORTED_FEATURES_FOR_READ": "Unsupported Delta read feature",
    "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE": "Unsupported Delta write feature",
    "DELTA_UNSUPPORTED_FEATURES_IN_CONFIG": "not recognized by this version",
    "DELTA_UNSUPPORTED_OUTPUT_MODE": "output mode",
    "DELTA_UNSUPPORTED_RENAME_COLUMN": "Column rename is not supported",
    "DELTA_UNSUPPORTED_SCHEMA_DURING_READ": "does not support specifying the schema at read time",
    "DELTA_UNSUPPORTED_SUBQUERY": "Subqueries are not supported",
    "DELTA_UNSUPPORTED_TIME_TRAVEL_MULTIPLE_FORMATS": "Cannot specify time travel in multiple formats",
    "DELTA_UNSUPPORTED_TIME_TRAVEL_VIEWS": "Cannot time travel views",
    "DELTA_UPDATE_SCHEMA_MISMATCH_EXPRESSION": "All nested columns must match",
    "DELTA_VACUUM_RETENTION_PERIOD_NEGATIVE": "can't be less than 0 hours",
    "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT": "The specified VACUUM retention period is too low",
    "DELTA_VERSIONS_NOT_CONTIGUOUS": "are not contiguous",
    "DELTA_VERSION_NOT_FOUND": "Cannot time travel Delta table to version",
    "DELTA_VIOLATE_CONSTRAINT": "violated by row with values",
    "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES": "violated by row with values",
    "DELTA_ZORDERING_COLUMN_DOES_NOT_EXIST": "does not exist in data schema",
    "DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS": "we currently do not collect stats for these columns",
    "DELTA_ZORDERING_ON_PARTITION_COLUMN": (
        "{colName} is a partition column. Z-Ordering can only be performed on data columns"
    ),
    "NO_DEFAULT_COLUMN_VALUE_AVAILABLE": "Can't determine the default value",
    "PATH_NOT_FOUND": "Path does not exist",
    "TABLE_OR_VIEW_ALREADY_EXISTS": "already exists",
    "TABLE_OR_VIEW_NOT_FOUND": "cannot be found",
    "UNRESOLVED_COLUMN.WITH_SUGGESTION": "cannot be resolved",
}
"""Phrases that programs written for the reference engine look for in the message of a condition."""

CONDITIONS: Final[Mapping[str, str]] = {name: state for state, names in _BY_STATE.items() for name in names.split()}


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of an error.

    Args:
        name: Result of ``getCondition()``.
        parameters: Result of ``getMessageParameters()``.
        sql_state: Result of ``getSqlState()``.
    """

    name: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    sql_state: str | None = None

    @classmethod
    def of(cls, name: str, /, **parameters: object) -> Condition:
        """Return a condition of the table with its parameters.

        Args:
            name: One of ``CONDITIONS``.
            **parameters: Values by the parameter names of its message. Several names are joined with commas.
        """
        return cls(name, {key: _shown(value) for key, value in parameters.items()}, CONDITIONS[name])


def sql_state(name: str) -> str | None:
    """Return the SQLSTATE of a condition, or None if it is not in the table."""
    return CONDITIONS.get(name)


def said(condition: Condition, message: str) -> str:
    """Return a message with the phrase that programs look for, unless the message already has it."""
    phrase = PHRASES.get(condition.name, "")
    try:
        phrase = phrase.format_map(condition.parameters)
    except KeyError:  # It was raised with other parameters than the reference engine's.
        return message
    return message if phrase in message else f"{message.removesuffix('.')} ({phrase})."


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    return ", ".join(map(str, value)) if isinstance(value, list | tuple | set | frozenset) else str(value)


def addressed(hint: str, table: str | None) -> str:
    """Replace the … of statements in a hint by a table's path. Without a table, the hint is unchanged.

    Example:
        >>> addressed("Run REORG TABLE … APPLY (PURGE).", "file:///a%20b")
        'Run REORG TABLE delta.`file:///a b` APPLY (PURGE).'
    """
    if table is None:
        return hint
    plain = (unquote(table) if table.startswith("file:") else table).replace("`", "``")
    for statement in ("ALTER TABLE", "REORG TABLE"):
        hint = hint.replace(f"{statement} …", f"{statement} delta.`{plain}`")
    return hint
