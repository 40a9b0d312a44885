"""Embed texts with OpenVINO, in several ways; print the texts a second of each as JSON.

Usage: openvino_texts.py GRAPH TOKENIZER TEXTS THREADS   (TEXTS: a JSON list)
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openvino
from tokenizers import Tokenizer

graph, tokenizer_file, texts_file, threads = sys.argv[1:]
texts = json.loads(Path(texts_file).read_text())
tokenizer = Tokenizer.from_file(tokenizer_file)
tokenizer.enable_truncation(256)
tokenizer.no_padding()
core = openvino.Core()
found = {}


def batches(size: int) -> Iterator[dict[str, Any]]:
    encodings = tokenizer.encode_batch_fast(texts)
    order = sorted(range(len(texts)), key=lambda n: -len(encodings[n].ids))
    for start in range(0, len(order), size):
        rows = [encodings[n].ids for n in order[start : start + size]]
        ids = np.zeros((len(rows), len(rows[0])), np.int64)
        mask = np.zeros_like(ids)
        for n, row in enumerate(rows):
            ids[n, : len(row)] = row
            mask[n, : len(row)] = 1
        yield {"input_ids": ids, "attention_mask": mask}


for hint in ("LATENCY", "THROUGHPUT"):
    settings = {"PERFORMANCE_HINT": hint, "INFERENCE_NUM_THREADS": int(threads)}
    # On some processors bfloat16 would be used, which is another precision.
    settings["INFERENCE_PRECISION_HINT"] = "f32"
    model = core.compile_model(graph, "CPU", settings)
    for size in (1, 8, 16, 32):
        queue = openvino.AsyncInferQueue(model)
        vectors: list[np.ndarray] = []
        queue.set_callback(
            lambda r, _, made=vectors: made.append(r.get_output_tensor(0).data.copy())
        )
        for warm_up in (True, False):
            vectors.clear()
            began = time.perf_counter()
            for n, some in enumerate(batches(size)):
                if warm_up and n * size >= 64:
                    break
                queue.start_async(some)
            queue.wait_all()
        assert sum(map(len, vectors)) == len(texts)
        found[f"OpenVINO {openvino.__version__.split('-')[0]}, {hint.lower()}, batch {size}"] = len(
            texts
        ) / (time.perf_counter() - began)
print(json.dumps(found))
