"""Retrieve, prompt, answer, check: the flow of a recommendation.

Whatever the model does, the rows are returned, with the reason if it did not answer.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from lakewake.config.settings import RecommendSettings
from lakewake.errors import LakewakeError
from lakewake.model.query import Hit, SearchResult
from lakewake.model.recommendation import AnsweredBy, Recommendation
from lakewake.model.rows import RowId
from lakewake.recommend.chat import Chat
from lakewake.recommend.cite import check_citations
from lakewake.recommend.context import Context
from lakewake.recommend.extract import extract
from lakewake.recommend.prompt import Prompt, build_prompt, row_text
from lakewake.recommend.talk import Turn, condense
from lakewake.recommend.tame import speaks_to_a_model

NO_MODEL = "no language model is configured ([recommend] url); this is quoted from the rows"
NO_ROWS = "no row was found, and the model was not asked"
NOTHING_FITS = "Nothing in the table fits this question."
NO_TEXT = "The rows found have no text to quote."

#: Question → hits, with the chunks that match; re-ranking, if any, happens inside.
Find = Callable[[str], SearchResult | Context]


def recommend(
    query: str, find: Find, settings: RecommendSettings, turns: Sequence[Turn] = ()
) -> Recommendation:
    """An answer to the question from the rows that `find` finds for it.

    Args:
        turns: the conversation before the question, oldest first.

    Raises:
        LakewakeError: the search failed. A model that fails is a `reason`, not an error.
    """
    *_, last = _begin(query, find, settings, turns, stream=False)
    assert isinstance(last, Recommendation)
    return last


def recommend_stream(
    query: str, find: Find, settings: RecommendSettings, turns: Sequence[Turn] = ()
) -> Iterator[str | Recommendation]:
    """The parts of the message as the model makes them; last, the whole recommendation.

    If a model breaks off, the recommendation's message replaces what came before. The search is
    done when this returns, and its errors are raised here.

    Raises:
        LakewakeError: the search failed.
    """
    return _begin(query, find, settings, turns, stream=True)


def _begin(
    query: str, find: Find, settings: RecommendSettings, turns: Sequence[Turn], *, stream: bool
) -> Iterator[str | Recommendation]:
    asked = condense(query, turns, settings)
    found = find(asked)
    context = found if isinstance(found, Context) else Context(found)
    parts = _answer(asked, context.within(settings.context_tokens), settings, stream=stream)
    return _named(parts, query, asked) if turns else parts


def _named(
    parts: Iterator[str | Recommendation], query: str, asked: str
) -> Iterator[str | Recommendation]:
    """The same, with the question as it was put and the one that was searched for."""
    for part in parts:
        yield part if isinstance(part, str) else replace(part, query=query, asked=asked)


def _answer(
    query: str, found: Context, settings: RecommendSettings, *, stream: bool
) -> Iterator[str | Recommendation]:
    if found.hits and settings.url:
        yield from _ask(query, found, settings, stream)
    else:
        quoted = _quote(query, found, NO_MODEL if found.hits else NO_ROWS)
        yield quoted.message
        yield quoted


def _ask(
    query: str, found: Context, settings: RecommendSettings, stream: bool
) -> Iterator[str | Recommendation]:
    prompt = build_prompt(query, found.hits, settings, _nonce(query, found.hits))
    message, finish = "", ""
    try:
        for piece in Chat(settings).ask(prompt.messages, stream=stream):
            message, finish = message + piece.text, piece.finish or finish
            if piece.text:
                yield piece.text
    except LakewakeError as error:
        quoted = _quote(query, found, f"{error.fact}; {error.hint}".rstrip("; "))
        if not message:
            yield quoted.message
        yield quoted
    else:
        yield _check(query, found, prompt, message.strip(), finish)


def _nonce(query: str, hits: Sequence[Hit]) -> str:
    """A word that nobody can predict, and that no row holds even by chance."""
    texts = [query, *(row_text(hit) for hit in hits)]
    while True:
        nonce = secrets.token_hex(8)
        if not any(nonce in text for text in texts):
            return nonce


def _check(query: str, found: Context, prompt: Prompt, message: str, finish: str) -> Recommendation:
    """The model's answer, with warnings about it."""
    cited = check_citations(message, prompt.shown)
    reasons = [*cited.reasons, *_warnings(prompt.shown)]
    if finish == "length":
        reasons.append("the model's answer was cut off at max_tokens")
    return _made(query, found, AnsweredBy.MODEL, message, cited.used, "; ".join(reasons))


def _warnings(shown: Sequence[Hit]) -> Iterator[str]:
    for n, hit in enumerate(shown, start=1):
        texts = [v for v in hit.payload.values() if isinstance(v, str)]
        if speaks_to_a_model("\n".join([*texts, hit.text or ""])):
            yield f"row [{n}] holds words that speak to a model; judge the answer with care"


def _quote(query: str, found: Context, reason: str) -> Recommendation:
    """The answer without a model."""
    if not found.hits:
        return _made(query, found, AnsweredBy.NONE, NOTHING_FITS, (), reason)
    quoted = extract(query, found.hits)
    if quoted is None:
        return _made(query, found, AnsweredBy.NONE, NO_TEXT, (), reason)
    return _made(query, found, AnsweredBy.EXTRACT, quoted.message, quoted.used, reason)


def _made(
    query: str,
    context: Context,
    by: AnsweredBy,
    message: str,
    used: tuple[RowId, ...],
    reason: str,
) -> Recommendation:
    found = context.found
    return Recommendation(
        query, message, by, used, found.hits, found.instant, reason or None, context.matched
    )
