"""For any text: chunks fit, cover the text, and are the same each time."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from lakewake.chunk.split import CHARACTERS_PER_TOKEN, Splitter
from lakewake.config.home import lakewake_home
from lakewake.model.recipe import Chunking

MINILM = lakewake_home() / "models" / "all-MiniLM-L6-v2" / "tokenizer.json"

sentence = st.lists(
    st.sampled_from(
        ["smoky", "RED", "uncharacteristically", "naïve", "酒", "🍷", "7,7,7", "x" * 120]
    ),
    min_size=1,
    max_size=12,
).map(lambda words: " ".join(words) + ". ")
texts = st.one_of(st.text(max_size=200), st.lists(sentence, max_size=12).map("".join))
limits = st.integers(3, 40)


@cache
def byte_tokenizer() -> str:
    """One token per byte, with [CLS] and [SEP]; truncates and pads to 4 unless told not to."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: n for n, token in enumerate(["[CLS]", "[SEP]", "[PAD]", *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 0), ("[SEP]", 1)]
    )
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=4, pad_id=2)
    return str(tokenizer.to_str())


@cache
def tokenizer_text(kind: str) -> str:
    if kind == "bytes":
        return byte_tokenizer()
    if not MINILM.exists():
        pytest.skip("the model's files are not set up")
    return MINILM.read_text()


@cache
def counting(kind: str) -> Tokenizer:
    tokenizer = Tokenizer.from_str(tokenizer_text(kind))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@cache
def splitter(kind: str, tokens: int, overlap: int, max_tokens: int) -> Splitter:
    return Splitter(Chunking(tokens, overlap), max_tokens, tokenizer_text(kind))


def compact(text: str) -> str:
    return "".join(text.split())


# A character of several bytes may not fit into a chunk of a few byte tokens.
KINDS = [("bytes", 12), ("minilm", 3)]


@pytest.mark.parametrize(("kind", "least"), KINDS)
@settings(max_examples=150, deadline=None)
@given(text=texts, room=limits, overlap=st.integers(0, 2))
def test_every_chunk_fits_the_model(
    kind: str, least: int, text: str, room: int, overlap: int
) -> None:
    limit = room + least
    for chunk in splitter(kind, 0, overlap, limit).split(text):
        assert len(counting(kind).encode(chunk)) <= limit


@pytest.mark.parametrize(("kind", "least"), KINDS)
@settings(max_examples=150, deadline=None)
@given(text=texts, room=limits)
def test_chunks_without_overlap_cover_the_text_once_in_order(
    kind: str, least: int, text: str, room: int
) -> None:
    chunks = splitter(kind, room + least, 0, 256).split(text)
    assert compact("".join(chunks)) == compact(text)


@settings(max_examples=100, deadline=None)
@given(text=texts, limit=st.integers(1, 10), overlap=st.integers(0, 1))
def test_chunks_counted_in_characters_keep_to_the_limit(
    text: str, limit: int, overlap: int
) -> None:
    chunks = Splitter(Chunking(0, min(overlap, limit - 1)), limit, None).split(text)
    assert all(len(chunk) <= limit * CHARACTERS_PER_TOKEN for chunk in chunks)
    if not overlap:
        assert compact("".join(chunks)) == compact(text)


@settings(max_examples=50, deadline=None)
@given(text=texts, limit=limits)
def test_a_text_is_cut_the_same_way_each_time(text: str, limit: int) -> None:
    tokenizer = tokenizer_text("bytes")
    first = Splitter(Chunking(), limit + 12, tokenizer).split(text)
    assert Splitter(Chunking(), limit + 12, tokenizer).split(text) == first


@settings(max_examples=50, deadline=None)
@given(kept=st.lists(sentence, min_size=12, max_size=20), old=sentence, new=sentence)
def test_an_edit_at_the_end_keeps_every_chunk_that_begins_a_chunk_length_before_it(
    kept: list[str], old: str, new: str
) -> None:
    limit = 100
    cut = splitter("bytes", limit, 0, 0)
    before, after = cut.split("".join(kept) + old), cut.split("".join(kept) + new)
    whole, done = compact("".join(kept)), 0
    # The end of a chunk depends only on the text that could fit into it.
    for one, other in zip(before, after, strict=False):
        if done + limit > len(whole):
            break
        assert one == other
        done += len(compact(one))
