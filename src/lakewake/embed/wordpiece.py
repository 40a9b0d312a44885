"""Words → tokens as BERT does, without the package `tokenizers`.

For questions: it reads a `tokenizer.json` of lower-cased WordPiece, as the built-in model has it,
and finds the same tokens. The package knows the Unicode of 2015, and takes marks and punctuation
added since then, some 500 of rare scripts, for letters.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator

from lakewake.extras import missing

#: What is known here of `tokenizer.json`; another tokenizer needs the package.
NORMALIZER = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}
#: Blocks of Chinese characters: each of these is a word.
_CHINESE = re.compile(
    "([\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f"
    "\U0002b740-\U0002b81f\U0002b920-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f])"
)
_ASCII_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
#: Control and formatting characters, and those without a meaning of their own.
_REMOVED = frozenset({"Cc", "Cf", "Co", "Cs"})
#: Unicode has spaces that `str.split` also splits at, and four marks that only it takes for spaces.
_NOT_SPACES = "\x1c\x1d\x1e\x1f"


class WordPiece:
    """The tokenizer of a `tokenizer.json`.

    Raises:
        SetupError: it is of another kind, which needs the package `tokenizers`.
    """

    def __init__(self, text: str) -> None:
        read = json.loads(text)
        model, after = read["model"], read.get("post_processor") or {}
        known = (
            model.get("type") == "WordPiece"
            and read.get("normalizer") == NORMALIZER
            and (read.get("pre_tokenizer") or {}).get("type") == "BertPreTokenizer"
            and after.get("type") == "TemplateProcessing"
        )
        if not known:
            raise missing("tokenizers, which this model needs,", "onnx")
        self._vocabulary: dict[str, int] = model["vocab"]
        self._prefix = model["continuing_subword_prefix"]
        self._longest = model["max_input_chars_per_word"]
        self._unknown = self._vocabulary[model["unk_token"]]
        special = {token["content"]: token["id"] for token in read["added_tokens"]}
        self._special: dict[str, int] = special
        self._split = re.compile("(" + "|".join(map(re.escape, special)) + ")")
        named = [p["SpecialToken"]["id"] for p in after["single"] if "SpecialToken" in p]
        self._first, self._last = (special[name] for name in named)

    def encode(self, text: str, most: int) -> list[int]:
        """The tokens of a text with those around it, at most this many."""
        found = [token for part in self._split.split(text) for token in self._part(part)]
        return [self._first, *found[: most - 2], self._last]

    def _part(self, text: str) -> Iterator[int]:
        if text in self._special:
            yield self._special[text]
            return
        for word in words(text):
            yield from self._word(word)

    def _word(self, word: str) -> list[int]:
        """The longest known pieces from the left; one unknown token if some of it is unknown."""
        if len(word) > self._longest:
            return [self._unknown]
        found: list[int] = []
        start = 0
        while start < len(word):
            prefix = self._prefix if start else ""
            ends = range(len(word), start, -1)
            end = next((e for e in ends if prefix + word[start:e] in self._vocabulary), None)
            if end is None:
                return [self._unknown]
            found.append(self._vocabulary[prefix + word[start:end]])
            start = end
        return found


def words(text: str) -> list[str]:
    """The words of a text, in lower case and without accents; punctuation is words of its own."""
    cleaned = "".join(map(_clean, text))
    spaced = _CHINESE.sub(r" \1 ", cleaned)
    plain = (c for c in unicodedata.normalize("NFD", spaced) if unicodedata.category(c) != "Mn")
    # Character by character: a whole word would change the last letter of a Greek one.
    lowered = "".join(c.lower() for c in plain)
    marked = "".join(f" {c} " if _is_punctuation(c) else c for c in lowered)
    return marked.split()


def _clean(character: str) -> str:
    if character in "\t\n\r":
        return " "
    if character == "\ufffd" or unicodedata.category(character) in _REMOVED:
        return ""
    return " " if character.isspace() and character not in _NOT_SPACES else character


def _is_punctuation(character: str) -> bool:
    return character in _ASCII_PUNCTUATION or unicodedata.category(character).startswith("P")
