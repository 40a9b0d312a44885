"""Search vectors with libraries in memory, one question at a time, on one thread.

Usage: in_memory.py VECTORS_NPY QUERIES_NPY K ROUNDS

Prints a JSON line when the indexes are built. Then, for each line that it reads, it asks every
question of every engine and prints a line: engine → recall@K, median and p99 in milliseconds.
"""

import json
import statistics
import sys
import time

import hnswlib
import numpy as np
from usearch.index import Index

vectors, queries = np.load(sys.argv[1]), np.load(sys.argv[2])
k, equal = int(sys.argv[3]), 1e-5
least = [float(np.partition(vectors @ q, -k)[-k]) - equal for q in queries]

began = time.perf_counter()
graph = hnswlib.Index(space="ip", dim=vectors.shape[1])
graph.init_index(len(vectors), M=16, ef_construction=200)
graph.add_items(vectors)
graph.set_num_threads(1)
hnswlib_seconds = time.perf_counter() - began

began = time.perf_counter()
half = Index(ndim=vectors.shape[1], metric="ip", dtype="f16", connectivity=16, expansion_add=128)
half.add(np.arange(len(vectors)), vectors)
usearch_seconds = time.perf_counter() - began


def exact(query):
    near = vectors @ query
    top = np.argpartition(-near, k)[:k]
    return top[np.argsort(-near[top])]


def with_ef(ef):
    return lambda: graph.set_ef(ef), lambda query: graph.knn_query(query, k)[0][0]


def with_expansion(expansion):
    def prepare():
        half.expansion_search = expansion

    return prepare, lambda query: half.search(query, k, threads=1).keys


engines = {"numpy exact": (lambda: None, exact)}
engines |= {f"hnswlib, ef {ef}": with_ef(ef) for ef in (20, 40, 80, 160, 320)}
engines |= {f"usearch f16, expansion {e}": with_expansion(e) for e in (40, 80, 160, 320)}


def measured(prepare, ask):
    prepare()
    found = [ask(query) for query in queries]
    times = []
    for query in queries:
        began = time.perf_counter()
        ask(query)
        times.append((time.perf_counter() - began) * 1000)
    shares = [
        float((vectors[some] @ q >= at_least).mean())
        for some, q, at_least in zip(found, queries, least, strict=True)
    ]
    return {
        "recall": statistics.mean(shares),
        "median": statistics.median(times),
        "p99": float(np.percentile(times, 99)),
    }


print(json.dumps({"hnswlib build": hnswlib_seconds, "usearch build": usearch_seconds}), flush=True)
for _ in sys.stdin:
    print(json.dumps({name: measured(*engine) for name, engine in engines.items()}), flush=True)
