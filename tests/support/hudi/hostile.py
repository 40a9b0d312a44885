"""Hostile settings of Spark and Hudi."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Each of these changes what some read returns, or makes some read fail.
HOSTILE_TO_SPARK = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.ansi.enforceReservedKeywords": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.crossJoin.enabled": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "-1",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.groupByAliases": "false",
    "spark.sql.jsonGenerator.ignoreNullFields": "true",
    "spark.sql.legacy.castComplexTypesToString.enabled": "true",
    "spark.sql.legacy.sizeOfNull": "false",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConstantFolding",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.read.ignoreMissing": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.parquet.int96AsTimestamp": "false",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
    "spark.sql.parquet.mergeSchema": "true",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.session.timeZone": "Asia/Kathmandu",
    "spark.sql.sources.default": "csv",
    # Two files are as many as 33 are by default: executors list them.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
}
#: Hudi advised this for years: Spark's reads then find only the newest base file of each group.
HOSTILE_TO_HADOOP = {
    "mapreduce.input.pathFilter.class": "org.apache.hudi.hadoop.HoodieROTablePathFilter",
}
HOSTILE_TO_HUDI = {
    "hoodie.datasource.merge.type": "skip_merge",
    "hoodie.datasource.query.incremental.format": "cdc",
    "hoodie.datasource.query.type": "read_optimized",
    "hoodie.datasource.read.begin.instanttime": "20990101000000000",
    "hoodie.datasource.read.end.instanttime": "20000101000000000",
    "hoodie.datasource.read.extract.partition.values.from.path": "true",
    "hoodie.datasource.read.incr.fallback.fulltablescan.enable": "true",
    "hoodie.datasource.read.incr.filters": "false",
    "hoodie.datasource.read.incr.path.glob": "nothing*",
    "hoodie.datasource.read.incr.skip_cluster": "true",
    "hoodie.datasource.read.incr.skip_compact": "true",
    "hoodie.enable.data.skipping": "true",
    "hoodie.file.index.enable": "false",
    "hoodie.query.as.ro.table": "true",
    "hoodie.read.timeline.holes.resolution.policy": "BLOCK",
    "hoodie.schema.on.read.enable": "false",
}
#: Each of these changes what a write does, or makes it fail.
HOSTILE_TO_WRITES = {
    "hoodie.bucket.index.num.buckets": "7",
    "hoodie.clean.automatic": "true",
    "hoodie.clean.commits.retained": "1",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS",
    "hoodie.cleaner.policy": "KEEP_LATEST_FILE_VERSIONS",
    "hoodie.clustering.inline": "true",
    "hoodie.clustering.inline.max.commits": "1",
    "hoodie.compact.inline": "true",
    "hoodie.compaction.strategy": "org.apache.hudi.table.action.compact.strategy."
    "DayBasedCompactionStrategy",
    "hoodie.datasource.hive_sync.enable": "true",
    "hoodie.datasource.meta.sync.enable": "true",
    "hoodie.datasource.insert.dup.policy": "drop",
    "hoodie.datasource.write.drop.partition.columns": "true",
    "hoodie.datasource.write.insert.drop.duplicates": "true",
    "hoodie.datasource.write.operation": "insert",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.embed.timeline.server": "true",
    "hoodie.index.bucket.engine": "CONSISTENT_HASHING",
    "hoodie.index.type": "SIMPLE",
    "hoodie.log.compaction.inline": "true",
    "hoodie.metadata.enable": "true",
    "hoodie.parquet.compression.codec": "brotli",
    "hoodie.populate.meta.fields": "false",
    "hoodie.table.base.file.format": "ORC",
    "hoodie.table.cdc.enabled": "true",
    "hoodie.table.name": "another",
    "hoodie.write.concurrency.mode": "OPTIMISTIC_CONCURRENCY_CONTROL",
    "hoodie.write.lock.provider": "no.such.LockProvider",
    "hoodie.write.record.merge.mode": "EVENT_TIME_ORDERING",
    "hoodie.write.table.version": "6",
}


def state_of(session: SparkSession) -> tuple:
    """What a caller can see of a session, and of the globals around it."""
    from pyspark import RDD
    from pyspark.sql import SparkSession

    active = session._jvm.SparkSession.getActiveSession()
    return (
        sorted(session._jsparkSession.conf().getAll().mkString("|").split("|")),
        active.get().hashCode() if active.isDefined() else None,
        SparkSession._activeSession,
        RDD.toDF,
        [view.name for view in session.catalog.listTables()],
        session.sparkContext._jsc.getPersistentRDDs().size(),
    )
