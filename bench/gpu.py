"""Bar 41: the built-in model on an NVIDIA card, beside sentence-transformers on the same card.

`python -m bench.gpu prepare FOLDER` on any machine writes the model in half precision, texts, and
the vectors that the processor makes of them. `python -m bench.gpu run FOLDER --out FILE` on a
machine with a card, torch and sentence-transformers measures, compares and writes the result.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from lakewake.config.settings import ModelSettings
from lakewake.embed.onnx import OnnxEmbedder

#: Tokens of a text, with the two that begin and end it: 72 on average.
SHORTEST, LONGEST = 64, 80
TEXTS, PEER_TEXTS, ROUNDS = 262_144, 32_768, 5
#: Texts whose vectors are compared: some like the others, and some from 3 to 256 tokens long.
COMPARED, OF_ANY_LENGTH = 1_000, 200
PEER_BATCHES = (256, 1_024, 4_096)
AT_LEAST, TIMES, DISTANCE = 40_000, 6, 1e-3
LARGE = ("*.onnx", "*.safetensors", "README.md", "data_config.json")


def main(args: Sequence[str]) -> int:
    """Prepare or run; returns the exit code, 1 if the bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("what", choices=("prepare", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, help="file for the result")
    parser.add_argument("--texts", type=int, default=TEXTS)
    chosen = parser.parse_args(args)
    if chosen.what == "prepare":
        return _prepare(chosen.folder)
    result = _run(chosen.folder, chosen.texts)
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    if chosen.out:
        chosen.out.write_text(text)
    print(text)
    return 0 if result["verdict"] == "met" else 1


def _prepare(folder: Path) -> int:
    from safetensors.numpy import save_file

    from lakewake.embed.folder import builtin_model

    shutil.rmtree(folder, ignore_errors=True)
    built_in = builtin_model()
    shutil.copytree(built_in.path, folder / "model", ignore=shutil.ignore_patterns(*LARGE))
    rounded = {k: _half(v) for k, v in built_in.read_tensors("fp16").items()}
    save_file(rounded, folder / "model" / "model.safetensors", {"format": "pt"})
    texts = _texts(folder, COMPARED, SHORTEST, LONGEST, 1)
    texts += _texts(folder, OF_ANY_LENGTH, 3, 256, 2)
    np.save(folder / "vectors.npy", _embedder(folder, "cpu").embed(texts))
    for graph in (folder / "model").glob("*.onnx"):
        graph.unlink()
    return 0


def _half(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float16) if value.dtype.kind == "f" else value


def _embedder(folder: Path, device: str, precision: str = "fp16") -> OnnxEmbedder:
    name = str(folder / "model")
    return OnnxEmbedder(ModelSettings(name=name, precision=precision, device=device))


def _texts(folder: Path, count: int, shortest: int, longest: int, seed: int) -> list[str]:
    """Texts of the vocabulary's whole words, one token each."""
    vocabulary = json.loads((folder / "model" / "tokenizer.json").read_text())["model"]["vocab"]
    words = np.array([w for w in vocabulary if w.isascii() and w.isalpha()])
    random = np.random.default_rng(seed)
    lengths = random.integers(shortest - 2, longest - 1, count)
    chosen = np.split(random.choice(words, lengths.sum()), np.cumsum(lengths)[:-1])
    return [" ".join(some) for some in chosen]


def _run(folder: Path, count: int) -> dict[str, Any]:
    texts = _texts(folder, count, SHORTEST, LONGEST, 3)
    distance = _distance(folder, _embedder(folder, "cuda"))
    ours = _measured(_embedder(folder, "cuda"), texts)
    exact = _measured(_embedder(folder, "cuda", "fp32"), texts)
    peers = _peers(folder, texts[:PEER_TEXTS])
    rate, best = statistics.median(ours), max(peers.values())
    met = rate >= AT_LEAST and rate >= TIMES * best and distance <= DISTANCE
    return {
        "bar": 41,
        "verdict": "met" if met else "missed",
        "texts_per_second": round(rate),
        "times_sentence_transformers": round(rate / best, 2),
        "largest_cosine_distance_to_the_processor": distance,
        "bars": {"texts_per_second": AT_LEAST, "times": TIMES, "cosine_distance": DISTANCE},
        "rounds": [round(r) for r in ours],
        "fp32_rounds": [round(r) for r in exact],
        "sentence_transformers": {name: round(r) for name, r in peers.items()},
        "texts": count,
        "peer_texts": PEER_TEXTS,
        "tokens_of_a_text": [SHORTEST, LONGEST],
        "machine": _machine(),
    }


def _distance(folder: Path, embedder: OnnxEmbedder) -> float:
    texts = _texts(folder, COMPARED, SHORTEST, LONGEST, 1)
    texts += _texts(folder, OF_ANY_LENGTH, 3, 256, 2)
    expected = np.load(folder / "vectors.npy").astype(np.float64)
    found = embedder.embed(texts).astype(np.float64)
    lengths = np.linalg.norm(found, axis=1) * np.linalg.norm(expected, axis=1)
    return float((1 - (found * expected).sum(axis=1) / lengths).max())


def _measured(embedder: OnnxEmbedder, texts: list[str]) -> list[float]:
    """Texts a second of each round, all the way from strings to vectors in memory."""
    embedder.embed(texts[: len(texts) // 4])
    return [len(texts) / _seconds(lambda: embedder.embed(texts)) for _ in range(ROUNDS)]


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _peers(folder: Path, texts: list[str]) -> dict[str, float]:
    """The same of sentence-transformers, in each of its ways."""
    from sentence_transformers import SentenceTransformer

    found = {}
    for half in (False, True):
        model = SentenceTransformer(str(folder / "model"), device="cuda")
        model = model.half() if half else model.float()
        for batch in PEER_BATCHES if half else PEER_BATCHES[1:2]:
            model.encode(texts[:batch], batch_size=batch, show_progress_bar=False)
            encode = partial(model.encode, texts, batch_size=batch, show_progress_bar=False)
            seconds = _seconds(encode)
            found[f"{'fp16' if half else 'fp32'}, batch {batch}"] = len(texts) / seconds
    return found


def _machine() -> dict[str, Any]:
    import os

    asked = "--query-gpu=name,driver_version,memory.total"
    card = subprocess.run(
        ["nvidia-smi", asked, "--format=csv,noheader"], capture_output=True, text=True
    )
    packages = ("torch", "sentence-transformers", "transformers", "tokenizers", "numpy")
    import torch

    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "card": card.stdout.strip(),
        "cuda": torch.version.cuda,
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
