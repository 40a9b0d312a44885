"""Embed texts with sentence-transformers, and save the vectors.

Usage: embed_texts.py TEXTS_JSON MODEL_FOLDER OUT_NPY
"""

import json
import sys
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

texts, model_folder, out = sys.argv[1:]
model = SentenceTransformer(model_folder, device="cpu")
np.save(out, model.encode(json.loads(Path(texts).read_text()), normalize_embeddings=True))
