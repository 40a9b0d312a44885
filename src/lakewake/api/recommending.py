"""Answers questions in words, from the rows of one index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from lakewake.config.settings import RecommendSettings
from lakewake.model.choices import one_of
from lakewake.model.query import Mode, Question

if TYPE_CHECKING:
    from lakewake.model.recommendation import Recommendation
    from lakewake.recommend.context import Context
    from lakewake.search.view import View

T = TypeVar("T")


class Recommending:
    """Recommends rows, by a chat model or by quoting."""

    _chat: RecommendSettings

    @property
    def name(self) -> str:
        """The name of the index in the configuration."""
        raise NotImplementedError

    def with_view(self, work: Callable[[View], T], *, as_of: str | None = None) -> T:
        """Call `work` with a view."""
        raise NotImplementedError

    def recommend(
        self,
        query: str,
        *,
        k: int = 5,
        where: str | Mapping[str, Any] | None = None,
        mode: str = "vector",
        model: bool = True,
        min_score: float | None = None,
        rerank: bool | None = None,
        conversation: Sequence[Mapping[str, str]] = (),
    ) -> Recommendation:
        """An answer in words to the query, from the `k` rows found for it. No JVM is started.

        If there is no chat model in `[recommend]`, or it fails, the answer quotes sentences of the
        rows instead. The rows are always part of the result.

        Args:
            query: the question; `k`, `where` and `mode` are those of `search`.
            model: False: quote the rows and do not ask the model.
            min_score: rows with a lower score are left out. If no row is left, the model is not
                asked, and the answer is that nothing fits. Default: `min_score` in `[recommend]`.
            rerank: as in `search`; default: `rerank` in `[recommend]`.
            conversation: what was said before, oldest first, as `{"role": "user" or "assistant",
                "content": "…"}`. The question may follow up on it.

        Raises:
            IndexMissing: there is no index yet.
            FilterError: the filter does not parse, or does more than compare columns with literals.
        """
        from lakewake.recommend import recommend

        find = self._finder(k, where, mode, min_score, rerank)
        return recommend(query, find, self._chat_if(model), conversation)

    def recommend_stream(
        self,
        query: str,
        *,
        k: int = 5,
        where: str | Mapping[str, Any] | None = None,
        mode: str = "vector",
        model: bool = True,
        min_score: float | None = None,
        rerank: bool | None = None,
        conversation: Sequence[Mapping[str, str]] = (),
    ) -> Iterator[str | Recommendation]:
        """Like `recommend`, but yields the message in parts as the model writes it.

        The last item is the whole recommendation. If the model breaks off, its message replaces
        the parts that came before.
        """
        from lakewake.recommend import recommend_stream

        find = self._finder(k, where, mode, min_score, rerank)
        return recommend_stream(query, find, self._chat_if(model), conversation)

    def _finder(
        self,
        k: int,
        where: str | Mapping[str, Any] | None,
        mode: str,
        min_score: float | None,
        rerank: bool | None,
    ) -> Callable[[str], Context]:
        from lakewake.recommend.context import Context
        from lakewake.search.run import check_question

        how = one_of(Mode, "mode", mode)
        least = self._chat.min_score if min_score is None else min_score
        again_ranked = (None if self._chat.rerank else False) if rerank is None else rerank

        def find(query: str) -> Context:
            question = Question(self.name, query, None, k, where, mode=how, min_score=least)
            check_question(question)
            # Without a scan: a recommendation could not show that there was one.
            return Context(*self.with_view(lambda v: v.answer_whole(question, rerank=again_ranked)))

        return find

    def _chat_if(self, model: bool) -> RecommendSettings:
        return self._chat if model else replace(self._chat, url="", name="")
