"""Real Hudi tables, and what happens to them."""

#: An index of a `HudiTables` in the folder `table` beside the configuration.
SAMPLE_CONFIG = """
[[index]]
name = "sample"
table = "table"
text = "{txt}"
payload = ["id", "num"]
store = "lance://index"
model = { provider = "hashing", dimension = 32 }
"""
#: For a separate session over a small table: compiling a query costs more than interpreting it.
SMALL_SPARK = """
[spark]
sql.shuffle.partitions = 1
default.parallelism = 1
sql.codegen.wholeStage = false
sql.codegen.factoryMode = "NO_CODEGEN"
ui.enabled = false
"""

#: Makes commits to small tables fast; tests of default settings override them per write.
SMALL_TABLES = {
    "hoodie.metadata.enable": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.insert.shuffle.parallelism": "1",
    "hoodie.upsert.shuffle.parallelism": "1",
    "hoodie.delete.shuffle.parallelism": "1",
    "hoodie.bulkinsert.shuffle.parallelism": "1",
}
