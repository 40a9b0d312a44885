"""Follow a Hudi table into LanceDB by hand: run it again whenever the table may have changed.

Usage: hand_written_sync.py TABLE DATABASE MODEL_FOLDER HUDI_BUNDLE

sentence-transformers is imported only when there is something to embed, so that a poll that
finds nothing is as quick as such a script can be.
"""

import os
import sys

import lancedb
from pyspark.sql import SparkSession

table, database, model_folder, bundle = sys.argv[1:]
bookmark = os.path.join(database, "last_commit")
timeline = os.path.join(table, ".hoodie", "timeline")

spark = (
    SparkSession.builder.master("local[*]")
    .config("spark.jars", bundle)
    .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
    .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
    .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
    .getOrCreate()
)
with open(bookmark) as file:
    since = file.read()
completed = [name.split("_")[1].split(".")[0] for name in os.listdir(timeline) if "_" in name]
rows = (
    spark.read.format("hudi")
    .option("hoodie.datasource.query.type", "incremental")
    .option("hoodie.datasource.read.begin.instanttime", since)
    .load(table)
    .select("wine_id", "title", "description", "country")
    .collect()
)
if rows:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(model_folder, device="cpu")
    vectors = model.encode([f"{row.title}. {row.description}" for row in rows])
    index = lancedb.connect(database).open_table("wines")
    for row, vector in zip(rows, vectors, strict=True):
        index.delete(f"wine_id = '{row.wine_id}'")
        index.add([{**row.asDict(), "vector": vector}])
    with open(bookmark, "w") as file:
        file.write(max(completed))
print(len(rows))
spark.stop()
