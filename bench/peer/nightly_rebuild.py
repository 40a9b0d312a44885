"""Rebuild the whole LanceDB table every night: read all, embed all, overwrite.

Usage: nightly_rebuild.py TABLE DATABASE MODEL_FOLDER HUDI_BUNDLE
"""

import os
import sys

import lancedb
from pyspark.sql import SparkSession
from sentence_transformers import SentenceTransformer

table, database, model_folder, bundle = sys.argv[1:]
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
completed = [name.split("_")[1].split(".")[0] for name in os.listdir(timeline) if "_" in name]
rows = (
    spark.read.format("hudi")
    .load(table)
    .select("wine_id", "title", "description", "country")
    .collect()
)
model = SentenceTransformer(model_folder, device="cpu")
vectors = model.encode([f"{row.title}. {row.description}" for row in rows])
lancedb.connect(database).create_table(
    "wines",
    [{**row.asDict(), "vector": vector} for row, vector in zip(rows, vectors, strict=True)],
    mode="overwrite",
)
with open(os.path.join(database, "last_commit"), "w") as file:
    file.write(max(completed))
print(len(rows))
spark.stop()
