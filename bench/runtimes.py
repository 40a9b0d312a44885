"""Bar 42: a build on the processor, beside the fastest runtime of the same precision."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.ground import FULL_TEXT, Ground
from bench.measures import Measure, Outcome
from lakewake.embed.folder import builtin_model
from lakewake.embed.onnx import (
    batches_by_length,
    open_session,
    open_tokenizer,
    pad,
    run_graph,
    threads_by_default,
)

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

#: Made by `make bench`. Not the environment of the hand-written scripts: bar 15 is its size.
PYTHON = Path(__file__).parents[1] / ".venv-runtimes" / "bin" / "python"
BATCHES = (1, 8, 16, 32)
AT_LEAST = 0.9


def bar_42(ground: Ground) -> Outcome:
    """Texts a second of a build from a table, as a share of the best runtime's alone."""
    measures, seen = [], {}
    for precision in ("fp32", "int8"):
        share, rates = _compared(ground, precision)
        measures.append(Measure(f"{precision}: of the best runtime's texts", share, "≥", AT_LEAST))
        seen[precision] = {name: round(rate, 2) for name, rate in rates.items()}
    note = (
        "OpenVINO runs the same fp32 graph; its int8 would be another model. For int8, vectors of "
        "batches above 1 depend on the texts beside them: Lakewake does not use them"
    )
    return Outcome(tuple(measures), {"texts": ground.sizes.runtime_rows, **seen, "note": note})


def _compared(ground: Ground, precision: str) -> tuple[float, dict[str, float]]:
    rows = ground.wines(ground.sizes.runtime_rows)
    model = f'model = {{name = "all-MiniLM-L6-v2", precision = "{precision}", device = "cpu"}}'
    followed = ground.followed(f"runtime_{precision}", rows, f"{FULL_TEXT}\n{model}")
    texts = [f"{r.title}. {r.description}" for r in rows.select("title", "description").collect()]
    half = len(texts) // 2
    # Half before and half after the build: a machine that gets slower affects both.
    before = _runtimes(ground, precision, texts[:half])
    seconds, _ = followed.sync()
    after = _runtimes(ground, precision, texts[half:])
    rates = {name: 2 / (1 / before[name] + 1 / after[name]) for name in before}
    built = len(texts) / seconds
    ground.say(f"{precision}: built {built:.1f} texts a second, the best {max(rates.values()):.1f}")
    return built / max(rates.values()), {"the build": built, **rates}


def _runtimes(ground: Ground, precision: str, texts: list[str]) -> dict[str, float]:
    """Texts a second of each runtime, tokenising included."""
    folder = builtin_model()
    session = open_session(folder, precision, threads_by_default())
    tokenizer = open_tokenizer(folder, folder.max_tokens)
    found = {
        f"onnxruntime, batch {size}": _rate(session, tokenizer, texts, size) for size in BATCHES
    }
    if precision == "fp32" and PYTHON.exists():
        found |= _openvino(ground, str(folder.graph(precision)), folder.path, texts)
    return found


def _rate(session: InferenceSession, tokenizer: Tokenizer, texts: list[str], size: int) -> float:
    run_graph(session, *pad([e.ids for e in tokenizer.encode_batch(texts[:size])]))
    began = time.perf_counter()
    encodings = tokenizer.encode_batch_fast(texts)
    made = [
        run_graph(session, *pad([encodings[n].ids for n in some]))
        for some in batches_by_length([len(e.ids) for e in encodings], size)
    ]
    seconds = time.perf_counter() - began
    assert np.concatenate(made).shape[0] == len(texts)
    return len(texts) / seconds


def _openvino(ground: Ground, graph: str, folder: Path, texts: list[str]) -> dict[str, float]:
    file = ground.scratch / "texts.json"
    file.write_text(json.dumps(texts))
    script = Path(__file__).parent / "peer" / "openvino_texts.py"
    args = (PYTHON, script, graph, folder / "tokenizer.json", file, threads_by_default())
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found
