"""Real embeddings of a million distinct short texts, made once and kept on this machine.

The texts are lines like those on a shelf: "Merlot 2011 (Napa Valley): plum, cherry, cedar, smoke"
and "waterproof, warm parka for weekend walks, Fellgate Drift". The words are those of the sample
tables; no two texts are alike. Of the titles of the sample wines only 208,530 differ.

The int8 model embeds about 900 of them a second on two quiet cores, so a million takes a little
less than 20 minutes. The vectors are appended to a file, block by block: a run that is stopped goes
on where it ended, and later runs read the file.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from bench.ground import Ground
from lakewake.config.home import lakewake_home
from lakewake.config.settings import ModelSettings
from lakewake.embed.registry import load_embedder
from lakewake.sample.shop_words import BRANDS, KINDS, MODELS
from lakewake.sample.words import PLACES, STYLES

DIMENSION = 384
MODEL = ModelSettings(precision="int8")
#: Texts that are embedded and written at the same time.
BLOCK = 4_096
#: Change it if the texts change.
VERSION = 1


def phrases(seed: int = 23) -> Iterator[str]:
    """Distinct short texts, the same ones for the same seed."""
    choose, seen = random.Random(seed), set[int]()
    while True:
        text = _wine(choose) if choose.random() < 0.6 else _product(choose)
        number = hash(text)
        if number not in seen:
            seen.add(number)
            yield text


def _wine(choose: random.Random) -> str:
    country = choose.choices(list(PLACES), [weight for weight, _ in PLACES.values()])[0]
    grown = choose.choice(list(PLACES[country][1].values()))
    variety, place = choose.choice(grown.varieties), choose.choice(grown.places)
    style = STYLES[variety]
    tastes = [*choose.sample(style.fruits, 2), *choose.sample(style.notes, 2)]
    return f"{variety} {choose.randint(2008, 2017)} ({place}): {', '.join(tastes)}"


def _product(choose: random.Random) -> str:
    kind = KINDS[choose.choice(list(KINDS))]
    traits = ", ".join(choose.sample(list(kind.traits), 2))
    noun, use = choose.choice(kind.nouns).lower(), choose.choice(kind.uses)
    return f"{traits} {noun} for {use}, {choose.choice(BRANDS)} {choose.choice(MODELS)}"


def vectors(ground: Ground, count: int) -> np.ndarray:
    """The vectors of the first `count` texts, one per row; the file is read as needed."""
    file = _file()
    file.parent.mkdir(parents=True, exist_ok=True)
    done = _whole_rows(file)
    if done < count:
        _embed(ground, file, done, count)
    found: np.ndarray = np.memmap(file, np.float32, "r", shape=(_whole_rows(file), DIMENSION))
    return found[:count]


def questions(after: int, count: int) -> np.ndarray:
    """Vectors of the texts that follow the first ones, embedded by the same model."""
    texts = list(islice(phrases(), after, after + count))
    return load_embedder(MODEL).embed(texts)


def _file() -> Path:
    identity = load_embedder(MODEL).identity
    digest = hashlib.sha256(f"{VERSION} {identity.as_dict()}".encode()).hexdigest()[:12]
    return lakewake_home() / "bench" / f"phrases-int8-{digest}.f32"


def _whole_rows(file: Path) -> int:
    return file.stat().st_size // (4 * DIMENSION) if file.exists() else 0


def _embed(ground: Ground, file: Path, done: int, count: int) -> None:
    embedder, began = load_embedder(MODEL), time.perf_counter()
    texts, first = islice(phrases(), done, count), done
    with open(file, "ab") as out:
        # A run that was killed may have left a part of a row.
        out.truncate(done * 4 * DIMENSION)
        while some := list(islice(texts, BLOCK)):
            out.write(embedder.embed(some).astype("<f4").tobytes())
            out.flush()
            os.fsync(out.fileno())
            done += len(some)
            rate = (done - first) / (time.perf_counter() - began)
            left = (count - done) / rate / 60
            ground.say(f"embedded {done:,} of {count:,}, {rate:.0f} a second, {left:.0f} min left")
