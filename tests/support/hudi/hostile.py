"""Hostile settings of Spark and Hudi."""

from __future__ import annotations

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
