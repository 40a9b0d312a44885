"""Split rows and texts into chunks that fit the model."""

from __future__ import annotations

import json
import random
import time
from itertools import pairwise

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from lakewake.chunk import chunk_row
from lakewake.chunk.split import Splitter
from lakewake.errors import ConfigError
from lakewake.model.chunks import text_hash
from lakewake.model.recipe import Chunking
from lakewake.model.rows import RowId

ROW = RowId("Italy", "wine_0")
WHOLE = Chunking()
WORDS = ("smoky", "red", "with", "leather", "and", "dry", "plum", "finish", ".", "changed")


def word_tokenizer() -> str:
    """One token per word, [CLS] and [SEP] around the text, and settings that cut and pad to 8."""
    vocabulary = {word: n for n, word in enumerate(("[UNK]", "[CLS]", "[SEP]", "[PAD]", *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    return str(tokenizer.to_str())


TOKENIZER = word_tokenizer()


def sentences(n: int) -> list[str]:
    rng = random.Random(7)
    texts = (" ".join(rng.choices(WORDS[:8], k=rng.randint(3, 9))) for _ in range(n))
    return [text.capitalize() + "." for text in texts]


def words(text: str) -> int:
    return len(pre_tokenizers.Whitespace().pre_tokenize_str(text))


def one_chunk(text: str) -> tuple[str, ...]:
    return (text,)


def test_the_chunks_of_a_row_are_numbered_from_0_in_each_field() -> None:
    chunks = chunk_row(ROW, {"title": "a b", "body": "c d"}, lambda text: tuple(text.split()))
    assert [(c.field, c.n, c.text) for c in chunks] == [
        ("title", 0, "a"),
        ("title", 1, "b"),
        ("body", 0, "c"),
        ("body", 1, "d"),
    ]
    assert {c.row for c in chunks} == {ROW}
    assert [c.hash for c in chunks] == [text_hash(t) for t in "abcd"]
    assert len({c.id for c in chunks}) == 4


@pytest.mark.parametrize("text", [None, "", "  ", "\n\t\u00a0"])
def test_a_blank_text_has_no_chunks_and_is_not_split(text: str | None) -> None:
    split: list[str] = []
    chunks = chunk_row(ROW, {"a": text, "b": "x"}, lambda t: one_chunk(split.append(t) or t))
    assert [c.field for c in chunks] == ["b"]
    assert split == ["x"]


def test_a_text_that_fits_is_one_unchanged_chunk() -> None:
    text = "  smoky red with leather and dry \n"
    assert Splitter(WHOLE, 8, TOKENIZER).split(text) == (text,)


def test_the_special_tokens_of_the_model_count_towards_its_limit() -> None:
    text = "smoky red with leather and dry plum"
    assert Splitter(WHOLE, 9, TOKENIZER).split(text) == (text,)
    assert len(Splitter(WHOLE, 8, TOKENIZER).split(text)) == 2


def test_a_tokenizer_that_cuts_and_pads_does_not_hide_the_length_of_a_text() -> None:
    assert json.loads(TOKENIZER)["truncation"]["max_length"] == 8
    chunks = Splitter(WHOLE, 22, TOKENIZER).split("Smoky red. " * 100)
    assert len(chunks) == 17
    assert max(words(p) for p in chunks) == 18


def test_chunks_end_at_sentence_ends() -> None:
    chunks = Splitter(WHOLE, 22, TOKENIZER).split(" ".join(sentences(40)))
    assert len(chunks) > 5
    assert all(p.endswith(".") and p[0].isupper() for p in chunks)


def test_a_text_is_not_split_if_no_limit_is_known() -> None:
    text = "Smoky red. " * 1000
    assert Splitter(WHOLE, 0, TOKENIZER).split(text) == (text,)
    assert Splitter(WHOLE, 0, None).split(text) == (text,)


def test_a_configured_token_limit_below_the_models_is_used() -> None:
    chunks = Splitter(Chunking(tokens=10), 256, TOKENIZER).split("Smoky red. " * 100)
    assert max(words(p) for p in chunks) == 9


def test_a_configured_token_limit_above_the_models_is_lowered_to_it() -> None:
    chunks = Splitter(Chunking(tokens=500), 22, TOKENIZER).split("Smoky red. " * 100)
    assert max(words(p) for p in chunks) == 18


def test_overlap_repeats_the_end_of_a_chunk_at_the_start_of_the_next() -> None:
    text = " ".join(sentences(40))
    chunks = Splitter(Chunking(tokens=20, overlap=8), 256, TOKENIZER).split(text)
    repeated = [b for a, b in pairwise(chunks) if a.endswith(b.split(".")[0] + ".")]
    assert len(repeated) > len(chunks) // 2
    assert max(words(p) for p in chunks) <= 20


def test_without_a_tokenizer_four_characters_count_as_a_token() -> None:
    splitter = Splitter(WHOLE, 10, None)
    assert splitter.split("x" * 40) == ("x" * 40,)
    assert splitter.split("x" * 41) == ("x" * 40, "x")


@pytest.mark.parametrize(
    ("chunking", "max_tokens"),
    [
        (Chunking(tokens=10, overlap=10), 0),
        (Chunking(overlap=254), 2),
        (Chunking(overlap=300), 256),
        (Chunking(tokens=-1), 256),
        (Chunking(overlap=-1), 256),
        (WHOLE, 2),
    ],
)
def test_limits_that_leave_no_room_are_refused(chunking: Chunking, max_tokens: int) -> None:
    with pytest.raises(ConfigError):
        Splitter(chunking, max_tokens, TOKENIZER)


def test_an_edit_of_the_last_sentence_keeps_all_chunks_but_the_last_two() -> None:
    splitter, old = Splitter(WHOLE, 22, TOKENIZER), sentences(60)
    before = splitter.split(" ".join(old))
    after = splitter.split(" ".join([*old[:-1], "Changed with plum."]))
    assert len(before) > 20
    assert before[:-2] == after[: len(before) - 2]
    assert before != after


def test_an_edit_of_the_first_sentence_keeps_the_chunks_after_the_borders_meet() -> None:
    splitter, old = Splitter(WHOLE, 22, TOKENIZER), sentences(60)
    before = splitter.split(" ".join(old))
    after = splitter.split(" ".join(["Changed with plum and leather.", *old[1:]]))
    assert before[0] != after[0]
    assert len(set(before) & set(after)) >= len(before) * 2 // 3


def test_an_edit_that_keeps_the_token_count_changes_one_chunk() -> None:
    splitter, old = Splitter(WHOLE, 22, TOKENIZER), sentences(60)
    edited = [*old[:30], old[30].replace(".", "").rsplit(" ", 1)[0] + " changed.", *old[31:]]
    before, after = splitter.split(" ".join(old)), splitter.split(" ".join(edited))
    assert len(before) == len(after)
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


@pytest.mark.parametrize(
    "text",
    ["🍷" * 100_000, "x" * 100_000, "7," * 50_000, "a" + " " * 100_000 + "b", "\x00smoky" * 1000],
    ids=["emoji", "one word", "no borders", "spaces", "NUL"],
)
@pytest.mark.parametrize("tokenizer", [TOKENIZER, None], ids=["tokens", "characters"])
def test_a_text_without_sentence_borders_is_cut_and_nothing_is_lost(
    text: str, tokenizer: str | None
) -> None:
    chunks = Splitter(WHOLE, 256, tokenizer).split(text)
    assert "".join("".join(chunks).split()) == "".join(text.split())


@pytest.mark.timeout(60)
def test_a_text_of_a_megabyte_is_cut_in_seconds() -> None:
    text = " ".join(sentences(1000) * 35)
    assert len(text) > 1_000_000
    began = time.process_time()
    chunks = Splitter(WHOLE, 256, TOKENIZER).split(text)
    assert time.process_time() - began < 20
    assert len(chunks) > 500
    assert max(words(p) for p in chunks) <= 254
