"""List the session settings of the reference engine: what each means, and what this engine makes of it.

``honoured`` ones are aliases of a setting of ours. ``refused`` ones would change rows, schema, protocol or the meaning
of a commit, and only one value is the behaviour here: any other is an error. The rest has no meaning here: performance,
layout, switches that bring an old defect back, other formats. ``docs/guides/settings.md`` shows the table; a test
compares the two.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pydelta.errors import InvalidArgumentError, UnknownSettingError
from pydelta.errors.suggestions import nearest

__all__ = ["PREFIX", "ReferenceSetting", "check_reference_settings", "guide_tables", "reference_settings"]

PREFIX: Final = "spark.databricks.delta."
DEFAULTS_PREFIX: Final = PREFIX + "properties.defaults."
_ONLY: Final = "only "


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceSetting:
    """One setting of the reference engine.

    Args:
        key: Its full name.
        meaning: What it is for, in one line.
        ours: Our setting of the same meaning, without ``spark.pydelta.``; None where it is not honoured.
        only: The one value (ignoring case) that is the behaviour here; None where every value is passed over.
        default: What the reference has where it is not set; None for nothing.
    """

    key: str
    meaning: str
    ours: str | None = None
    only: str | None = None
    default: str | None = None


@functools.cache
def reference_settings() -> Mapping[str, ReferenceSetting]:
    """Return all of them by full name, in the order of the table."""
    return {item.key: item for item in _parsed()}


def _parsed() -> Iterator[ReferenceSetting]:
    more = dict(item.split("=") for item in _MORE_DEFAULTS.split())
    for line in _TABLE.strip().splitlines():
        given, rule, meaning = line.split(" | ")
        name, separator, value = given.partition("=")
        default = value if separator else more.get(name)
        key = name if name.startswith("spark.databricks.io.") else PREFIX + name
        if rule.startswith(_ONLY):
            yield ReferenceSetting(key=key, meaning=meaning, only=rule.removeprefix(_ONLY), default=default)
        else:
            yield ReferenceSetting(key=key, meaning=meaning, ours=None if rule == "-" else rule, default=default)


def check_reference_settings(session: Mapping[str, str]) -> None:
    """Refuse what a session sets and this engine would silently do otherwise.

    Args:
        session: All settings of a Spark session.

    Raises:
        InvalidArgumentError: A setting has a value that is not supported and would change what is written.
        UnknownSettingError: A name that nothing reads, within a letter or two of one that is honoured or refused.
    """
    known = reference_settings()
    for key, value in session.items():
        if not key.startswith(PREFIX) or key.startswith(DEFAULTS_PREFIX):
            continue
        setting = known.get(key)
        if setting is None:
            _refuse_misspelling(key)
        elif setting.only is not None and value.strip().lower() != setting.only.lower():
            raise InvalidArgumentError(
                f"{key} is {value!r}, which this engine does not support: it always works as with {setting.only!r}. "
                f"Its meaning: {setting.meaning}",
                hint=f"Unset it with spark.conf.unset({key!r}), or set it to {setting.only}.",
            )


def _refuse_misspelling(key: str) -> None:
    """Names of other engines pass; one that looks like a setting that counts would be passed over in silence."""
    counting = [name for name, item in reference_settings().items() if item.ours or item.only]
    meant = nearest(key, counting, cutoff=0.95)
    if meant is not None:
        raise UnknownSettingError(f"Unknown setting {key!r}.", hint=f"Did you mean {meant!r}?")


def guide_tables() -> str:
    """Render the tables of the guide as Markdown."""
    honoured = [f"| `{item.key}` | `spark.pydelta.{item.ours}` | {item.meaning} |" for item in _kind("ours")]
    refused = [f"| `{item.key}` | `{item.only}` | {item.meaning} |" for item in _kind("only")]
    rest = [
        f"| `{item.key}` | {item.meaning} |"
        for item in reference_settings().values()
        if not item.ours and not item.only
    ]
    return "\n".join(
        [
            "## Honoured",
            "| setting of the reference | the same here | meaning |\n|---|---|---|",
            *honoured,
            "",
            "## Refused unless they have one value",
            "| setting | the value | meaning |\n|---|---|---|",
            *refused,
            "",
            "## Without meaning here",
            "| setting | meaning in the reference |\n|---|---|",
            *rest,
        ]
    )


def _kind(attribute: str) -> list[ReferenceSetting]:
    return [item for item in reference_settings().values() if getattr(item, attribute)]


_TABLE: Final = """
adaptiveMetadataTree.preview.enabled | - | Whether a table may use the adaptive metadata tree, which this engine refuses.
allFilesInCrc.enabled=true | - | Whether the checksum of a small table lists its files.
allFilesInCrc.thresholdIndexedCols | - | From how many indexed columns on the checksum lists no files.
allFilesInCrc.thresholdNumFiles=50 | - | Up to how many files the checksum lists them.
allFilesInCrc.verificationMode.enabled=false | - | Whether the files in a checksum are compared with the log.
allFilesInCrc.verificationMode.forceOnNonUTC.enabled=true | - | The same, where the JVM's zone is not UTC.
allowArbitraryProperties.enabled=false | - | Whether unknown `delta.*` properties may be set; here never.
alter.replaceColumns.safe.enabled=true | - | Whether REPLACE COLUMNS may drop all columns; here never.
alterLocation.bypassSchemaCheck=false | - | Whether SET LOCATION may lead to a table of another schema.
alterTable.bypassCharVarcharToStringFix=false | - | Brings an old treatment of char and varchar back.
alterTable.changeColumn.checkExpressions | - | Whether ALTER COLUMN looks at constraints and generated columns; here always.
alterTable.dropColumn.enabled=true | - | Whether DROP COLUMN exists; here always.
alwaysCollectStats.enabled=false | - | Whether a scan counts rows from statistics.
amt.entriesPerLeaf=50000 | - | Size of a leaf of the adaptive metadata tree.
amt.fullRewriteCheckpointIntervalMultiplier=5 | - | How often that tree is written anew.
amt.largeCommitActionsCountThresholdForInlineManifestCommit | - | From which commit size on that tree goes into the commit.
autoCompact.earlySkipPartitionTable.enabled=true | - | When auto compaction looks whether there is work.
autoCompact.enabled | autoCompact.enabled | Compact small files after a write.
autoCompact.maxFileSize=134217728 | autoCompact.maxFileSize | Size of the files that auto compaction makes.
autoCompact.maxNumModifiedPartitions=128 | - | How many changed partitions auto compaction takes at once.
autoCompact.maxTablePartitionStats=16384 | - | How many partitions of a table the reference counts small files of.
autoCompact.minFileSize | autoCompact.minFileSize | Files of this size and larger are left alone.
autoCompact.minNumFiles=50 | autoCompact.minNumFiles | Small files that a partition must have.
autoCompact.modifiedPartitionsOnly.enabled | - | Whether just the partitions that a commit changed are compacted; here always.
autoCompact.nonBlindAppend.enabled=false | - | Whether appends are left alone.
autoCompact.partitionStatsSize=65536 | - | How many partitions of all tables are counted.
autoCompact.recordPartitionStats.enabled=true | - | Whether they are counted.
autoCompact.reservePartitions.enabled=true | - | Whether compactions of one process keep out of each other's way.
backfill.maxNumFiles=22000 | - | Files in one commit of a backfill.
backfill.maxNumFilesFactor=3.0 | - | How many files a backfill may meet in all.
catalog.enableServerSidePlanning=false | - | Whether a catalog service plans scans.
catalog.update.enabled | - | Whether schema and properties are copied into the catalog; here they are, see tables-by-name.md.
catalog.update.longFieldTruncationThreshold=4000 | - | How long a field in that copy may be.
catalog.update.threadPoolSize=20 | - | Threads that copy.
changeColumn.checkDependentExpressionsUseV2=true | - | How constraints that name a column are found.
changeColumn.renameColumnEscapeName=true | - | Whether RENAME COLUMN escapes names; here always.
changeDataFeed.allowTimeTravelOptionsForSchema=false | - | Whether a read of the feed may name a version for its schema.
changeDataFeed.defaultSchemaModeForColumnMappingTable=endVersion | - | Which version's schema a read of the feed has.
changeDataFeed.timestampOutOfRange.enabled=false | - | Whether a feed may begin or end after the last commit.
changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled | - | Whether a feed may be read over renamed columns.
changelogV2.enabled=false | - | Another reader of the feed.
checkConstraints.validation.enabled=LOG_ONLY | - | Which expressions a CHECK may hold; here checked when it is added.
checkLatestSchemaOnRead=true | - | Whether a query fails when the schema has changed since it was planned.
checkpoint.dropBackReference.enabled=true | - | A field of the adaptive metadata tree.
checkpoint.exceptionThrowing.enabled=false | - | Whether a failed checkpoint fails the commit; here it is reported.
checkpoint.partSize | - | Actions in one part of a checkpoint; here a checkpoint is one file.
checkpointSchema.useFromCheckpointMetadata=true | - | Where the reader of a checkpoint takes its schema from.
checkpointSchema.writeThresholdLength=20000 | - | Up to which length that schema is written beside it.
checkpointV2.exposeTableFeatureForTesting=false | - | For the reference's own tests.
checkpointV2.threadpool.size=32 | - | Threads that read sidecars.
checkpointV2.topLevelFileFormat | - | JSON or Parquet for the main file of a V2 checkpoint.
checksum.mismatch.fatal=true | - | Whether a wrong checksum fails a read.
checksumDVMetrics.enabled=true | - | Whether checksums count deletion vectors.
checksumDeletedRecordCountsHistogramMetrics.enabled=true | - | Whether checksums hold a histogram of deleted rows.
clone.iceberg.allowPartialStats=true | - | For clones of Iceberg tables.
clone.replaceEnabled=true | only true | Whether CREATE OR REPLACE … CLONE replaces a table.
clusteredTable.numClusteringColumnsLimit=4 | - | How many clustering columns there may be; here 4.
collectStats.convertIceberg=true | - | For Iceberg tables.
collectStats.convertIceberg.date=true | - | For Iceberg tables.
collectStats.convertIceberg.decimal=true | - | For Iceberg tables.
collectStats.convertIceberg.timestamp=true | - | For Iceberg tables.
collectStats.fallbackToInterpretedProjection=true | - | How statistics are computed.
collectStats.numFilesPerPartition=100 | - | Files that one task reads footers of.
collectStats.skipFloatingPointFromFooter | - | Whether bounds of float columns are taken from footers of other writers.
collectStats.useMultiThreadedStatsCollection=true | - | Whether footers are read by threads.
columnMapping.allowRemoval=true | - | Whether column mapping can be taken off; here by DROP FEATURE.
columnMapping.checkMaxColumnId=true | - | Whether column ids are checked; here always.
columnMapping.disallowEnablingWhenColumnMappingMetadataAlreadyExists | - | Whether leftovers of column mapping stop it from being turned on.
columnMapping.reuseColumnMetadataDuringOverwrite=true | - | Whether columns keep their ids in an overwrite.
columnMapping.reuseColumnMetadataDuringReplace=true | - | The same, in a REPLACE.
columnMapping.stripMetadata=true | - | Whether leftovers of column mapping are taken off schemas; here always.
command.fileMaterializationLimit.enabled=true | - | Whether the driver limits how many files it holds.
command.fileMaterializationLimit.softMax=10000000 | - | That limit.
commandInvariantChecksThrow=false | - | Whether counts of a command that do not add up fail it; here always.
commandInvariantChecksUseUnreliable=true | - | Which counts are compared.
commit.idempotencyCheck.enabled=false | - | Whether a commit recognises itself after a lost reply; here always.
commit.inconsistentList.maxRetries=3 | - | How often a stale listing is read again.
commitInfo.userMetadata | commit.userMetadata | Text for the history.
commitLock.enabled | - | Whether a process's commits wait for each other.
commitMetrics.enabled=true | - | Whether commits are reported to a catalog service.
commitMetrics.threadPoolSize=20 | - | Threads that report.
commitStats.force=false | - | More lines in the driver's log.
commitValidation.consistentDataChange.mode=log | - | How `dataChange` in a commit is checked.
commitValidation.enabled=true | - | Whether actions are checked before a commit; here always.
conflictChecker.enforceConcurrentFeatureEnablement.enabled | - | Whether a feature that is turned on conflicts with other writers; here always.
conflictDetection.allowReplaceTableToRemoveNewDomainMetadata | - | What a REPLACE does to domains that came meanwhile; here it conflicts.
conflictDetection.partitionLevelConcurrency.widenNonDeterministicPredicates | - | How conditions with rand() are checked; here they are refused.
constraints.allowUnenforcedNotNull.enabled=false | - | Whether NOT NULL inside arrays and maps may go unchecked.
constraints.assumesDropIfExists.enabled | - | Whether DROP CONSTRAINT passes over one that is not there; here with IF EXISTS.
convert.iceberg.bucketPartition.enabled=true | - | For Iceberg tables.
convert.iceberg.castTimeType=false | - | For Iceberg tables.
convert.iceberg.enabled=true | - | For Iceberg tables.
convert.iceberg.partitionEvolution.enabled=false | - | For Iceberg tables.
convert.iceberg.useNativePartitionValues=true | - | For Iceberg tables.
convert.metadataCheck.enabled=true | - | Whether properties of the catalog's entry stop a CONVERT.
convert.partitionValues.ignoreCastFailure | only false | Whether CONVERT takes null for a folder's value that is not of its column's type.
convert.useCatalogPartitions=true | - | Where CONVERT of a catalog's table learns of its partitions.
convert.useCatalogSchema=true | - | Where it learns of its columns.
convert.useMetadataLog=true | - | Whether CONVERT follows the log of a stream's output; here such a folder is refused.
convertEmptyToNullForStringPartitionCol | only true | Whether an empty text in a partition column is null when constraints are checked.
coordinatedCommits.commitCoordinator.dynamodb.awsCredentialsProviderName | - | For commit coordinators, which this engine refuses.
coordinatedCommits.commitCoordinator.dynamodb.readCapacityUnits=5 | - | Likewise.
coordinatedCommits.commitCoordinator.dynamodb.skipPathCheckEnabled=false | - | Likewise.
coordinatedCommits.commitCoordinator.dynamodb.writeCapacityUnits=5 | - | Likewise.
coordinatedCommits.commitFilesIterator.backfillGapFix.enabled=true | - | Likewise.
coordinatedCommits.getCommits.threadPoolSize=5 | - | Likewise.
coordinatedCommits.ignoreMissingCoordinatorImplementation=true | - | Likewise.
createDataFrame.dropNullColumns=false | - | Whether void columns are left out of reads.
createEmptySchemaTable.enabled=true | - | Whether a table may have no columns; here always.
delete.allowExistsSubquery=false | - | Whether a DELETE's condition may hold EXISTS.
delete.deletionVectors.persistent | only true | Whether DELETE writes deletion vectors where the table enables them.
deletionVectors.disableTightBoundOnFileCreationForDevOnly=false | - | For the reference's own tests.
deletionVectors.packing.targetSize=2097152b | - | Size of a file of deletion vectors.
deletionVectors.propagateCloseFailure | - | Whether a vector file that cannot be finished fails the command; here always.
deletionVectors.skipCommitCheck=true | - | For the reference's own tests.
deletionVectors.useMetadataRowIndex=true | - | How scans number rows.
delta.log.cacheRetentionMinutes=3600000ms | - | How long the log of a table is held in memory.
delta.log.cacheSize=10000 | - | Of how many tables.
deltaLog.getChangeLogFiles.failOnGapsInTests=true | - | For the reference's own tests.
deltaLog.getChangeLogFiles.logGaps=true | - | More lines in the driver's log.
deltaLog.minorCompaction.useForReads=true | - | Whether compacted log files are read; here always.
deltaTableBuilder.forceTablePropertyLowerCase.enabled | only false | Whether the builder writes names of properties in lower case.
dml.insert.dfByName.allowImplicitCasts=true | - | Whether a write by name casts values; here as far as no value is lost.
dmlMetricsFromMetadata.enabled=true | - | Whether commands over whole files count rows by statistics; here always.
domainMetadatasInCrc.maxAllowed=10 | - | Up to how many domains a checksum lists.
dummyFileManager.numOfFiles=3 | - | A workaround for old S3.
dummyFileManager.prefix=.s3-optimization- | - | The same.
duplicateActionCheck.enabled=true | - | Whether a path may stand twice in a commit; here never.
dynamicPartitionOverwrite.enabled=true | only true | Whether partitionOverwriteMode=dynamic is followed.
dynamicPartitionOverwrite.parsePartitionValues=true | - | Whether partitions are compared by typed values; here always.
emptyFileCheck.throwEnabled=false | - | Whether a data file of no bytes fails the commit.
enableTableRedirectFeature=false | - | For redirected tables, which this engine refuses.
failOnPartitionValueParsingError=false | - | Whether a partition value that cannot be read fails the read; here always.
featureEnablement.conflictResolution.enabled=true | - | Whether a feature can be turned on beside other writers.
fileSizeHistogramMetrics.enabled=true | - | Whether checksums hold a histogram of file sizes.
generatedColumn.allowNullableIngest.enabled | - | Whether columns may be left out of a write where others are generated; here always.
generatedColumn.partitionFilterOptimization.enabled | - | Whether conditions are carried over to generated partition columns; here always.
generatedColumn.validateOnWrite.enabled | - | Which expressions generate columns; here checked when the table is made.
geo.preview.enabled=false | - | Geometry types, which this engine refuses.
history.maxKeysPerList=1000 | - | Commits in one listing of a history.
history.metricsEnabled=true | - | Whether commits carry metrics; here always.
history.threadPoolSize=10 | - | Threads that read a history.
hms.schema.forceAlterTableDataSchema=false | - | How schemas get into a metastore; see tables-by-name.md.
hudi.maxPendingCommits=100 | - | For Hudi metadata.
iceberg.maxPendingActions=100000 | - | For Iceberg metadata.
iceberg.maxPendingCommits=100 | - | For Iceberg metadata.
identityColumn.allowSyncIdentityToLowerHighWaterMark.enabled=false | - | Whether SYNC IDENTITY may go back; here never.
identityColumn.enabled=true | - | Whether identity columns exist; here always.
import.batchSize.schemaInference=1000000 | - | Files of which CONVERT reads footers at once.
import.batchSize.statsCollection=50000 | - | The same, for statistics.
inCommitTimestamp.retainEnablementInfoFix.enabled | - | Whether a REPLACE keeps since when commits carry their time; here always.
includeTableIdInFileIndexComparison=true | - | When two scans count as the same.
incremental.commit.enabled=true | - | Whether a checksum is derived from the one before; here always.
incremental.commit.forceVerifyInTests=true | - | For the reference's own tests.
incremental.commit.verify=false | - | Whether it is checked by reading the whole log.
insert.byName.schemaEvolution.enabled | only true | Whether INSERT BY NAME adds columns where schema evolution is on.
insert.preserveNullSourceStructs=true | only true | Whether a null struct that is inserted stays null.
insertOverwrite.removeMetrics.enabled=true | - | Whether an overwrite counts what it removes; here always.
insertReplaceOnOrUsing.materializeSource | - | When REPLACE ON and USING keep the rows of their source; here they read it once.
internalUdfOptimization.enabled=true | - | How the reference makes its functions.
isDeltaTable.strictCheck=true | - | Whether an empty `_delta_log` makes a table; here never.
isDeltaTable.throwOnError=true | - | Whether isDeltaTable tells errors; here always.
lastCheckpoint.checksum.enabled=true | - | Whether `_last_checkpoint` has a checksum.
lastCheckpoint.nonFileActions.threshold=30 | - | What it holds of a V2 checkpoint.
lastCheckpoint.sidecars.threshold=30 | - | The same.
lastCheckpoint.suppressOptionalFields=false | - | Whether it is kept as short as can be.
lastCommitVersionInSession | - | The reference sets it to the version of its last commit; here DESCRIBE HISTORY tells.
legacy.allowAmbiguousPathsInCreateTable=false | - | Whether a CREATE TABLE may name two locations.
legacy.storeOptionsAsProperties=false | only false | Whether options of saveAsTable become properties of the table.
liquid.alterColumnAfter.statsSchemaCheck=true | - | Whether a moved clustering column keeps its statistics.
loadFileSystemConfigsFromDataFrameOptions=true | - | Whether a writer's options may name storage settings; here always.
maxCommitAttempts=10000000 | commit.maxAttempts | Races that a commit may lose before it gives up.
maxNonConflictCommitAttempts=10 | - | The same, for other failures.
maxSnapshotLineageLength=50 | log.maxSnapshotChain | Commits applied on top of each other before a snapshot is rebuilt.
merge.analysis.batchActionResolution.enabled=true | - | How MERGE resolves names.
merge.deletionVectors.persistent=true | only true | Whether MERGE writes deletion vectors where the table enables them.
merge.emptySchemaTargetCheck.enabled=true | - | Whether a MERGE into a table without columns fails.
merge.failIfSourceChanged=false | - | Whether MERGE looks if its source changed under way; here it is read once.
merge.failSourceCachedAfterMaterialization=true | - | The same, for a source that was cached.
merge.forceSourceMaterializationWithUnreadableFilesConfig=true | - | When MERGE keeps the rows of its source.
merge.insert.fixCaseSensitiveDuplicateColumns | - | Whether columns that differ in case alone are told apart in MERGE.
merge.materializeCachedSource=true | - | When MERGE keeps the rows of its source.
merge.materializeSource=auto | - | The same.
merge.materializeSource.maxAttempts=4 | - | How often it does so again.
merge.materializeSource.rddStorageLevel=DISK_ONLY | - | Where.
merge.materializeSource.rddStorageLevelFirstRetry=DISK_ONLY_2 | - | Where, the second time.
merge.materializeSource.rddStorageLevelRetry=DISK_ONLY_3 | - | Where, after that.
merge.optimizeInsertOnlyMerge.enabled=true | - | Whether a MERGE that only inserts rewrites no file; here always.
merge.optimizeMatchedOnlyMerge.enabled=true | - | Which join MERGE takes.
merge.preserveNullSourceStructs=true | only true | Whether a null struct of the source stays null.
merge.preserveNullSourceStructs.updateStar=true | only true | The same, for UPDATE SET *.
merge.repartitionBeforeWrite.enabled=true | - | Whether MERGE brings the rows of a partition together.
merge.skipOssResolutionWithStar=true | - | Who resolves UPDATE * and INSERT *.
metrics.alwaysReportSomeZeroMetrics=true | - | Whether DELETE tells counts of 0; here always.
normalizePartitionValuesOnRead=true | - | Whether partition values are compared as typed values; here always.
nullPartitionCheck.throwEnabled=false | - | Whether a null in a NOT NULL partition column fails; here always.
numRecordsValidation.enabled=true | - | Whether rows of removed and added files have to add up; here always.
optimize.batchSize | - | Whether OPTIMIZE commits in parts.
optimize.clustering.mergeStrategy.minCubeSize.targetCubeSize=161061273600 | - | Size of a group of clustered files.
optimize.clustering.mergeStrategy.minCubeSize.threshold | - | From which size on such a group is left alone.
optimize.conditionalIncrementMetric.enabled=true | - | How metrics are counted.
optimize.maxDeletedRowsRatio | optimize.maxDeletedRowsRatio | Files of which a larger part is deleted are rewritten.
optimize.maxFileSize=1073741824 | optimize.maxFileSize | Size of the files that OPTIMIZE makes.
optimize.maxThreads=15 | - | Jobs of an OPTIMIZE at once; here one job takes all.
optimize.minFileSize=1073741824 | optimize.minFileSize | Files of this size and larger are left alone.
optimize.repartition.enabled=false | - | How small files are brought together.
optimize.zorder.checkStatsCollection.enabled=true | - | Whether ZORDER BY needs columns with statistics.
optimize.zorder.fastInterleaveBits.enabled=false | - | How a Z-order is computed.
optimizeMetadataQuery.enabled=true | read.metadataQuery | Answer count(*), min and max from the log.
optimizeWrite.binSize=536870912b | write.optimizeBinSize | Bytes that an optimised write brings together for one task.
optimizeWrite.enabled | write.optimize | Shuffle rows before a write, so that partitions get few files.
optimizeWrite.maxShufflePartitions=2000 | - | Tasks of that shuffle at most; here Spark's adaptive execution decides.
optimizeWrite.numShuffleBlocks=50000000 | - | The same.
partitionColumnChangeCheck=log-only | - | Whether partition columns that change are reported.
partitionColumnValidity.enabled=true | - | Whether names of partition columns are checked; here always.
postCommitHook.throwOnError=false | - | Whether a failed hook fails the command; here it is reported.
properties.defaults.minReaderVersion=1 | properties.defaults.minReaderVersion | Reader version of a new table.
properties.defaults.minWriterVersion=2 | properties.defaults.minWriterVersion | Writer version of a new table.
readProtocolAndMetadataFromChecksum.enabled=true | - | Whether a checksum tells protocol and metadata.
replace.protocolDowngradeAllowed=false | only false | Whether a REPLACE may take features off the protocol.
replaceOn.dataframe.writer.enabled=true | only true | Whether a DataFrame writer takes the option replaceOn.
replaceUsing.dataframe.writer.enabled=true | only true | The same, for replaceUsing.
replaceWhere.constraintCheck.enabled | write.replaceWhereCheck | Refuse rows of a replaceWhere that do not satisfy its condition.
replaceWhere.dataColumns.enabled | write.replaceWhereDataColumns | Let replaceWhere name columns that do not partition the table.
replaceWhere.dataColumns.metrics.enabled=true | - | Whether such a write counts rows; here always.
replaceWhere.dataColumnsWithCDF.enabled=true | only true | Whether such a write records a change data feed.
requiredSparkConfsCheck.enabled=true | - | Whether the session has the reference's extension.
resolveMergeUpdateStructsByName.enabled | only true | Whether fields of structs are matched by name in UPDATE and MERGE.
restore.protocolDowngradeAllowed=false | only false | Whether a RESTORE or CLONE may take features off the protocol.
retentionDurationCheck.enabled=true | vacuum.retentionCheck | VACUUM refuses a retention below the table's.
rowTracking.backfill.enabled | - | Whether row tracking can be turned on for a table with rows; here by DeltaTable.enableRowTracking.
rowTracking.backfill.maxNumFiles=22000 | - | Files in one commit of that.
rowTracking.ignoreSuspension=false | - | For the reference's own tests.
schema.autoMerge.enabled=false | schema.autoMerge | Add the data's new columns to the table.
schema.removeExistsDefault=true | - | Whether EXISTS_DEFAULT is left out of schemas; here always.
schema.removeSparkInternalMetadata=true | - | Whether Spark's own notes are left out of schemas; here always.
schema.typeCheck.enabled=true | - | Whether a table may have types that it cannot store; here never.
schemaEvolution.merge.fixNestedStructAlignment | - | Whether new fields inside structs are aligned in MERGE; here always.
setTransactionsInCrc.maxAllowed=100 | - | Up to how many applications a checksum lists.
setTransactionsInCrc.writeOnCommit=true | - | Whether it lists them.
skipRecordingEmptyCommits=true | - | Whether a command that changed nothing makes no version; here it makes none.
skipRedirectFeature=false | - | For redirected tables, which this engine refuses.
skipping.enhancedIsNullPushdownExprs.enabled=true | - | Which conditions skip files.
skipping.enhancedIsNullPushdownExprs.maxDepth=8 | - | The same.
skipping.partitionLikeDataSkipping.additionalSupportedExpressions | - | The same.
skipping.partitionLikeDataSkipping.limitToClusteringColumns=true | - | The same.
skipping.partitionLikeDataSkippingFilesThreshold=100 | - | The same.
skipping.partitionLikeFilters.enabled=false | - | The same.
snapshot.logging.maxFilesThreshold=500000 | - | When a large table is mentioned in the driver's log.
snapshotCache.storageLevel=MEMORY_AND_DISK_SER | - | Where the reference keeps a snapshot.
snapshotLoading.maxRetries=2 | - | How often another checkpoint is tried.
snapshotPartitions | - | Tasks that read a log; here it takes no job.
spark.sql.delta.sharing.cdfEnableHistoricalProtocol=false | - | For Delta Sharing.
spark.sql.delta.sharing.cdfStreamingAutoResolveResponseFormat=false | - | For Delta Sharing.
spark.sql.delta.sharing.enableAutoResolveForCdf=false | - | For Delta Sharing.
spark.sql.delta.sharing.enableDeltaFormatBatch=true | - | For Delta Sharing.
spark.sql.delta.sharing.forceDeltaFormat=false | - | For Delta Sharing.
spark.sql.delta.sharing.streamingAutoResolveResponseFormat=false | - | For Delta Sharing.
spark.sql.delta.sharing.streamingConvertStartingTimestampToVersion=false | - | For Delta Sharing.
spark.sql.delta.sharing.streamingEnableHistoricalProtocol=false | - | For Delta Sharing.
stalenessLimit=0ms | - | How old a snapshot a query may see; here it is the newest.
stats.collect=true | only true | Whether data files get statistics.
stats.collect.using.tableSchema=true | - | Which schema chooses their columns.
stats.limitPerVariant=0 | - | Statistics of a variant column.
stats.limitPushdown.enabled=true | - | Whether LIMIT skips files.
stats.limitPushdown.skipNonDeterministicFilters.enabled=true | - | The same.
stats.skipping=true | - | Whether statistics skip files; here always.
statsAsStructInCheckpoint.forcedDisabled | - | Whether checkpoints hold statistics as columns; here as the table's properties say.
streaming.allowSchemaLocationOutsideCheckpointLocation | stream.schemaLocationAnywhere | Let a stream keep its schemas outside of its checkpoint.
streaming.createDataFrame.dropNullColumns=false | - | For streams over the table.
streaming.distributedInitialSnapshot=false | - | For streams over the table.
streaming.ignoreInternalMetadataForSchemaChange.enabled=true | - | For streams over the table.
streaming.initialSnapshotMaxFiles=100000 | - | For streams over the table.
streaming.logSizeInMemoryThreshold=134217728 | - | For streams over the table.
streaming.offsetValidation.enabled=true | - | For streams over the table.
streaming.schemaTracking.enabled=true | - | For streams over the table.
streaming.schemaTracking.mergeConsecutiveSchemaChanges.enabled=true | - | For streams over the table.
streaming.schemaTracking.metadataPathCheck.enabled=true | - | For streams over the table.
streaming.schemaValidationOnRestart.enabled=true | - | For streams over the table.
streaming.sink.implicitCastEscapeColumnNames=true | - | For streams into the table.
streaming.sink.implicitCastForTypeMismatchOnly=true | - | For streams into the table.
streaming.trailingCommitValidation.enabled=true | - | For streams over the table.
streaming.unsafeReadOnIncompatibleColumnMappingSchemaChanges.enabled=false | - | For streams over the table.
streaming.unsafeReadOnIncompatibleSchemaChangesDuringStreamStart.enabled=false | - | For streams over the table.
streaming.unsafeReadOnNullabilityChange.enabled=false | - | For streams over the table.
streaming.unsafeReadOnPartitionColumnChanges.enabled=false | - | For streams over the table.
table.parquetV2.timestampOutputType | - | How times are written where the table asks for a newer Parquet format.
tableFeatures.allowMetadataCleanupWhenAllProtocolsSupported=true | - | What log clean-up checks.
tableFeatures.dev.allowMetadataCleanupCheckpointExistenceCheck.disabled=false | - | For the reference's own tests.
tableFeatures.dev.fastDropFeature.DVDiscoveryInVacuum.disabled=false | - | For the reference's own tests.
tableFeatures.dev.unsupportedTableFeatures.enabled=false | - | For the reference's own tests.
tableFeatures.fastDropFeature.alwaysValidateProtocolInStreaming.enabled=true | - | For streams over the table.
tableFeatures.fastDropFeature.dvTombstoneCountThreshold=10000 | - | How DROP FEATURE finds deletion vectors.
tableFeatures.fastDropFeature.enabled=true | - | How DROP FEATURE treats the history.
tableFeatures.fastDropFeature.generateDVTombstones.enabled=true | - | How it keeps vector files from VACUUM.
tableFeatures.testFeatures.enabled=true | - | For the reference's own tests.
tablePropertyConstraintsCheck.enabled=true | - | Whether values of properties are checked; here always.
testOnly.dataFileNamePrefix= | - | For the reference's own tests.
testOnly.dvFileNamePrefix= | - | For the reference's own tests.
timeTravel.parsing.strict=true | - | Whether a time that is none is refused; here always.
timeTravel.resolveOnIdentifier.enabled=true | only true | Whether a name or path that ends in @v1 means version 1.
typeWidening.allowAutomaticWidening | only ALWAYS | Which types schema evolution may widen, where the table allows it.
typeWidening.allowIntegralDecimalCoercion=true | - | Whether it may bring a whole number and a decimal together.
typeWidening.allowTypeChangeStreamingDeltaSource=true | - | For streams over the table.
typeWidening.allowUnsupportedIcebergTypeChanges=false | - | For Iceberg metadata.
typeWidening.bypassStreamingTypeChangeCheck=false | - | For streams over the table.
typeWidening.bypassUnsupportedTypeChangeCheck | - | Whether a type change that is not known may be read; here never.
typeWidening.enableStreamingSchemaTracking=false | - | For streams over the table.
typeWidening.removeSchemaMetadata=true | - | Whether notes on type changes are hidden from queries; here always.
uniform.hudi.sync.convert.enabled=false | - | For Hudi metadata.
uniform.iceberg.geospatial.enabled=false | - | For Iceberg metadata.
uniform.iceberg.include.base.converted.version=true | - | For Iceberg metadata.
uniform.iceberg.maxActionsToConvertForCommitLarge=1000000 | - | For Iceberg metadata.
uniform.iceberg.retry.times=3 | - | For Iceberg metadata.
uniform.iceberg.sync.convert.enabled=false | - | For Iceberg metadata.
uniform.iceberg.v3.enabled=true | - | For Iceberg metadata.
update.deletionVectors.persistent | only true | Whether UPDATE writes deletion vectors where the table enables them.
updateAndMergeCastingFollowsAnsiEnabledFlag | only false | Whether UPDATE and MERGE cast by ANSI's flag and not by the store assignment policy.
v2.enableMode=AUTO | - | Which of the reference's two connectors is taken.
vacuum.enforceDeletedFileAndLogRetentionDurationCompatibility | - | Whether a log shorter than the files' retention is refused.
vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration | - | Whether versions whose files may be gone can be read.
vacuum.lite.enabled=false | - | Whether VACUUM is LITE by default; here VACUUM … LITE says so.
vacuum.logging.enabled | - | Whether VACUUM commits its beginning and end; here always.
vacuum.parallelDelete.enabled=false | - | How VACUUM deletes; see vacuum.md.
vacuum.parallelDelete.parallelism | - | The same.
vacuum.relativize.ignoreError | - | Whether VACUUM passes over paths that it cannot place; here it keeps what it cannot place.
vacuum.retentionWindowIgnore.enabled=true | - | Whether VACUUM passes over its RETAIN; here it never does.
variant.disableVariantTableFeatureForSpark40=false | - | For Spark 4.0.
variant.forceUsePreviewTableFeature=false | only false | Whether a new table with variants gets the preview's feature.
variantShredding.collectVariantDataSkippingStats=true | - | Statistics of variants, which are not written shredded.
variantShredding.forceUsePreviewTableFeature=true | - | Likewise.
variantShredding.guardVariantInStatsSchema.enabled=true | - | Likewise.
variantShredding.parseFooterForStats=false | - | Likewise.
versionChecksum.forcedValidationInterval=400 | - | How often checksums are checked against the log.
versionChecksum.forcedValidationMinTimeIntevalMinutes=720 | - | The same.
workAroundColonsInHadoopPaths.enabled=true | - | How colons in paths are treated; here as data.
write.dataFilesToSubdir=false | only false | Whether data files go to a folder `data/`.
write.txnAppId | write.txnAppId | Application that changes of rows are committed for; with the next one, each version once.
write.txnVersion | write.txnVersion | The application's version.
write.txnVersion.autoReset.enabled | write.txnVersionAutoReset | Unset that version in the session after each command that used it.
write.utcTimestampPartitionValues=true | only true | Whether times in partition values are written in UTC.
writeChecksumFile.enabled=true | - | Whether commits get a checksum file; here always.
writeChecksumFile.histogramFollowsProtocol=true | - | The name of a field in it.
spark.databricks.io.skipping.mdc.addNoise=true | - | How ZORDER BY breaks ties.
spark.databricks.io.skipping.mdc.rangeId.max=1000 | - | How finely it divides values.
spark.databricks.io.skipping.mdc.sortWithinFiles=false | - | Whether it sorts within files; here always.
spark.databricks.io.skipping.stringPrefixLength=32 | - | Length of texts in statistics; here 32.
"""  # noqa: E501
"""Name, rule (our setting; ``only`` and the value that is the behaviour here; ``-``), meaning."""
_MORE_DEFAULTS: Final = """
adaptiveMetadataTree.preview.enabled=true alterTable.changeColumn.checkExpressions=true
amt.largeCommitActionsCountThresholdForInlineManifestCommit=9223372036854775807
autoCompact.modifiedPartitionsOnly.enabled=true catalog.update.enabled=false
changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled=false
collectStats.skipFloatingPointFromFooter=true
columnMapping.disallowEnablingWhenColumnMappingMetadataAlreadyExists=true
conflictChecker.enforceConcurrentFeatureEnablement.enabled=false
conflictDetection.allowReplaceTableToRemoveNewDomainMetadata=true
conflictDetection.partitionLevelConcurrency.widenNonDeterministicPredicates=on
constraints.assumesDropIfExists.enabled=false convert.partitionValues.ignoreCastFailure=false
convertEmptyToNullForStringPartitionCol=true
coordinatedCommits.commitCoordinator.dynamodb.awsCredentialsProviderName=com.amazonaws.auth.DefaultAWSCredentialsProviderChain
delete.deletionVectors.persistent=true deletionVectors.propagateCloseFailure=true
deltaTableBuilder.forceTablePropertyLowerCase.enabled=false generatedColumn.allowNullableIngest.enabled=true
generatedColumn.partitionFilterOptimization.enabled=true generatedColumn.validateOnWrite.enabled=LOG_ONLY
inCommitTimestamp.retainEnablementInfoFix.enabled=true insert.byName.schemaEvolution.enabled=true
insertReplaceOnOrUsing.materializeSource=auto merge.insert.fixCaseSensitiveDuplicateColumns=true
optimize.clustering.mergeStrategy.minCubeSize.threshold=107374182400 optimize.maxDeletedRowsRatio=0.05
replaceWhere.constraintCheck.enabled=true replaceWhere.dataColumns.enabled=true
resolveMergeUpdateStructsByName.enabled=true rowTracking.backfill.enabled=true
schemaEvolution.merge.fixNestedStructAlignment=true streaming.allowSchemaLocationOutsideCheckpointLocation=false
table.parquetV2.timestampOutputType=TIMESTAMP_MICROS typeWidening.allowAutomaticWidening=ALWAYS
typeWidening.bypassUnsupportedTypeChangeCheck=false update.deletionVectors.persistent=true
updateAndMergeCastingFollowsAnsiEnabledFlag=false vacuum.enforceDeletedFileAndLogRetentionDurationCompatibility=true
vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration=true vacuum.relativize.ignoreError=false
write.txnVersion.autoReset.enabled=false
"""
"""Defaults of the settings whose line has no room for one."""
