"""Bar 40: how good searches are: SciFact's questions, beside bm25s and sentence-transformers.

SciFact's licence (CC BY-NC) does not allow us to pass it on. Its folder, in BEIR's format, is read
from `$LAKEWAKE_BEIR`, or `beir/scifact` where models are kept. Without it, and in a small run, the
questions are known items: some words of a sample review, whose answer is that review.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.ground import Ground
from bench.measures import Measure, Outcome
from lakewake import sample
from lakewake.config.home import lakewake_home
from lakewake.evaluate import compare, evaluate, read_questions
from lakewake.evaluate.metrics import DEPTH
from lakewake.model.evaluation import Evaluation, Questions

if TYPE_CHECKING:
    from lakewake.api import Index

MAIN = "ndcg@10"
TEXT = 'text = "{title}. {text}"\nembedding_store = false\n'
#: How many chunks a peer ranks. The best chunk of each row counts.
CHUNKS = 6 * DEPTH
#: A question about a review: these of its words.
ASKED = slice(4, 12)


def bar_40(ground: Ground) -> Outcome:
    """nDCG@10 of each mode; the peers rank the same chunks."""
    folder, real = _dataset(ground)
    index = _built(ground, folder)
    questions = read_questions(folder)
    ours = index.evaluate(folder)
    chunks = _chunks(index)
    words = _peer(ours, questions, "bm25s", _bm25s(chunks, questions))
    vectors = _peer(ours, questions, "sentence-transformers", _by_vector(ground, chunks, questions))
    value = {mode: means[MAIN].value for mode, means in ours.means.items()}
    beside_words = compare(words, "bm25s", ours, "keyword").differences[MAIN] if words else None
    beside_vectors = (
        compare(vectors, "sentence-transformers", ours, "vector").differences[MAIN]
        if vectors
        else None
    )
    best = max(value["vector"], value["keyword"])
    return Outcome(
        (
            Measure(
                "vector, from sentence-transformers'",
                abs(beside_vectors.value) if beside_vectors else None,
                "≤",
                0.005,
            ),
            Measure(
                "keyword, more than bm25s with stems",
                beside_words.value if beside_words else None,
                "≥",
                -0.005,
            ),
            Measure("hybrid, more than the better of both", value["hybrid"] - best, "≥", 0.0),
            Measure("hybrid", value["hybrid"], "≥" if real else "", 0.70),
        ),
        {
            "questions": "SciFact, test" if real else "known items of the sample reviews",
            "number": len(questions.labelled),
            "rows_and_chunks": [len({c["key"] for c in chunks}), len(chunks)],
            "means": ours.as_dict()["means"],
            "bm25s": words.means["bm25s"][MAIN].as_dict() if words else None,
            "keyword_minus_bm25s": beside_words.as_dict() if beside_words else None,
            "vector_minus_sentence_transformers": (
                beside_vectors.as_dict() if beside_vectors else None
            ),
        },
    )


def _dataset(ground: Ground) -> tuple[Path, bool]:
    """A folder in BEIR's format, and whether it is SciFact."""
    given = os.environ.get("LAKEWAKE_BEIR")
    folder = Path(given) if given else lakewake_home() / "beir" / "scifact"
    if not ground.sizes.hasty and (folder / "corpus.jsonl").is_file():
        return folder, True
    return _known_items(ground.scratch / "known-items", min(ground.sizes.build_rows, 2_000)), False


def _known_items(folder: Path, rows: int) -> Path:
    """Reviews, and for every tenth a question of some of its words."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    reviews = sample.wines(rows).to_pylist()
    corpus = [
        {"_id": str(r["wine_id"]), "title": r["title"], "text": r["description"]} for r in reviews
    ]
    asked = [
        {"_id": f"q{one['_id']}", "text": " ".join(one["text"].split()[ASKED])}
        for one in corpus[::10]
    ]
    judged = "".join(f"{q['_id']}\t{q['_id'][1:]}\t1\n" for q in asked)
    _write_lines(folder / "corpus.jsonl", corpus)
    _write_lines(folder / "queries.jsonl", asked)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    return folder


def _write_lines(file: Path, values: Sequence[Mapping[str, Any]]) -> None:
    file.write_text("".join(json.dumps(value) + "\n" for value in values))


def _built(ground: Ground, folder: Path) -> Index:
    """An index of the corpus, through a Hudi table."""
    lines = (folder / "corpus.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines if line.strip()]
    file = ground.scratch / "corpus.parquet"
    table = pa.table(
        {
            "id": [str(r["_id"]) for r in rows],
            "title": [r.get("title") or "" for r in rows],
            "text": [r["text"] for r in rows],
            "part": ["all"] * len(rows),
            "ts": [1] * len(rows),
        }
    )
    pq.write_table(table, file)
    frame = ground.spark.read.parquet(str(file))
    followed = ground.followed("quality", frame, TEXT, key="id", partition="part")
    followed.sync()
    return followed.index


def _chunks(index: Index) -> list[dict[str, str]]:
    """The texts that the index holds, each with the key of its row."""
    reader = index.parts.store.open()
    assert reader is not None
    return [
        {"key": c["_key"], "text": c["_text"]}
        for batch in reader.scan(["_key", "_text"])
        for c in batch.to_pylist()
    ]


def _bm25s(chunks: Sequence[Mapping[str, str]], questions: Questions) -> dict[str, list[str]]:
    """Question → keys, best first, by bm25s with PyStemmer and English stop words."""
    import bm25s
    import Stemmer

    how = {
        "stopwords": "en",
        "stemmer": Stemmer.Stemmer("english"),
        "show_progress": False,
    }
    ranker = bm25s.BM25()
    ranker.index(bm25s.tokenize([c["text"] for c in chunks], **how), show_progress=False)
    asked = bm25s.tokenize([q.text for q in questions.labelled], **how)
    wanted = min(CHUNKS, len(chunks))
    found, scores = ranker.retrieve(asked, k=wanted, show_progress=False)
    return {
        q.text: [chunks[int(n)]["key"] for n, score in zip(*row, strict=True) if score > 0]
        for q, row in zip(questions.labelled, zip(found, scores, strict=True), strict=True)
    }


def _by_vector(
    ground: Ground, chunks: Sequence[Mapping[str, str]], questions: Questions
) -> dict[str, list[str]]:
    """Question → keys, by the cosines of sentence-transformers' own vectors; empty: no peer."""
    if ground.peer is None:
        return {}
    given, made = ground.scratch / "texts.json", ground.scratch / "vectors.npy"
    asked = [q.text for q in questions.labelled]
    given.write_text(json.dumps([c["text"] for c in chunks] + asked))
    model = lakewake_home() / "models" / "all-MiniLM-L6-v2"
    ground.run(ground.peer_script("embed_texts", given, model, made))
    vectors = np.load(made)
    held, wanted = vectors[: len(chunks)], vectors[len(chunks) :]
    best = np.argsort(-(wanted @ held.T), axis=1, kind="stable")[:, :CHUNKS]
    rows = zip(asked, best, strict=True)
    return {text: [chunks[int(n)]["key"] for n in row] for text, row in rows}


def _peer(
    ours: Evaluation, questions: Questions, name: str, found: Mapping[str, list[str]]
) -> Evaluation | None:
    """How good a peer's rankings are, measured as ours are."""
    if not found:
        return None
    means, answered = evaluate(questions, [name], lambda text, _: found[text])
    return Evaluation(
        name, ours.instant, 0, questions.source, questions.fingerprint, means, answered
    )
