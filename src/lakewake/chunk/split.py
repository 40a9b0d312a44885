"""A text → texts that fit the model, one per chunk, cut between sentences if possible. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakewake.errors import ConfigError
from lakewake.extras import not_installed
from lakewake.model.recipe import Chunking

if TYPE_CHECKING:
    from semantic_text_splitter import TextSplitter
    from tokenizers import Tokenizer

#: The assumed length of a token if the model's tokenizer is not available.
CHARACTERS_PER_TOKEN = 4
#: How many characters the splitter sees at once, for each token of a chunk. If a text has no
#: borders, its time grows with the square of what it sees.
_WINDOW = 32


class Splitter:
    """Cuts texts into chunks for one model.

    A text that fits is one chunk, as it is. A longer one is cut from the left into chunks that are
    as long as fits, without white space around them. So an edit changes at most one chunk before
    it, which may now hold more or less text, and the chunks after it until the borders meet again.

    Args:
        chunking: `tokens` 0 cuts only what the model cannot read whole; above 0, chunks have at
            most that many tokens.
        max_tokens: what the model reads, including its own special tokens; 0: no limit is known.
        tokenizer: `tokenizer.json` as text. Without it a token counts as 4 characters, which is a
            guess: a chunk may have more tokens than the model reads.

    Raises:
        ConfigError: the limits leave no room for a chunk.
    """

    def __init__(self, chunking: Chunking, max_tokens: int, tokenizer: str | None) -> None:
        self._tokenizer = None if tokenizer is None else _counting(tokenizer)
        special = self._tokenizer.num_special_tokens_to_add(False) if self._tokenizer else 0
        limits = [n for n in (chunking.tokens, max_tokens and max_tokens - special) if n]
        self._limit = min(limits, default=0)
        _check_limits(chunking, max_tokens, self._limit)
        self._splitter = self._make_splitter(chunking.overlap) if limits else None

    def split(self, text: str) -> tuple[str, ...]:
        """The text itself if it fits, else its chunks in order; none of them is blank."""
        if self._splitter is None or self._fits(text):
            return (text,)
        return tuple(chunk for chunk in self._cut(self._splitter, text) if chunk.strip())

    def _make_splitter(self, overlap: int) -> TextSplitter:
        try:
            from semantic_text_splitter import TextSplitter
        except ImportError as error:
            raise not_installed(error) or error from error

        if self._tokenizer:
            return TextSplitter.from_huggingface_tokenizer(self._tokenizer, self._limit, overlap)
        return TextSplitter(self._limit * CHARACTERS_PER_TOKEN, overlap * CHARACTERS_PER_TOKEN)

    def _fits(self, text: str) -> bool:
        if self._tokenizer is None:
            return len(text) <= self._limit * CHARACTERS_PER_TOKEN
        # A token has at least one byte, except for a mark that some tokenizers put in front.
        # Normalizing can make several characters of one that is not ASCII.
        if text.isascii() and len(text) < self._limit:
            return True
        return len(self._tokenizer.encode(text, add_special_tokens=False)) <= self._limit

    def _cut(self, splitter: TextSplitter, text: str) -> list[str]:
        chunks: list[str] = []
        start, window = 0, self._limit * _WINDOW
        while start < len(text):
            end = start + window
            found = splitter.chunk_indices(text[start:end])
            if end >= len(text):
                return chunks + [chunk for _, chunk in found]
            if len(found) < 2:
                window *= 2
                continue
            # The last chunk ends where the window does, not where it should.
            chunks += [chunk for _, chunk in found[:-1]]
            start, window = start + found[-1][0], self._limit * _WINDOW
        return chunks


def _counting(tokenizer: str) -> Tokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise not_installed(error) or error from error

    counting = Tokenizer.from_str(tokenizer)
    # A tokenizer that cuts and pads gives every text the same length.
    counting.no_truncation()
    counting.no_padding()
    return counting


def _check_limits(chunking: Chunking, max_tokens: int, limit: int) -> None:
    if chunking.tokens < 0 or chunking.overlap < 0 or limit < 0 or (max_tokens and not limit):
        raise ConfigError(
            f"chunks of {chunking.tokens} tokens with {chunking.overlap} of overlap do not fit "
            f"a model of {max_tokens} tokens",
            hint="set `tokens` and `overlap` to 0 or more, within what the model reads",
        )
    if limit and chunking.overlap >= limit:
        raise ConfigError(
            f"an overlap of {chunking.overlap} tokens leaves no room in chunks of {limit}",
            hint="set `overlap` below the length of a chunk",
        )
