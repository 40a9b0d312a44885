"""Languages: their stems, the words that carry no meaning, and which one a text is in. Pure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

#: The language of texts whose words are compared as they are.
NONE = "none"
#: What a configuration writes for "look at the texts".
AUTO = "auto"
#: Languages that have stems: the Snowball stemmers that PyStemmer includes.
LANGUAGES = (
    *("arabic", "armenian", "basque", "catalan", "czech", "danish", "dutch", "english"),
    *("esperanto", "estonian", "finnish", "french", "german", "greek", "hindi", "hungarian"),
    *("indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "persian", "polish"),
    *("portuguese", "romanian", "russian", "serbian", "sesotho", "spanish", "swedish", "tamil"),
    *("turkish", "yiddish"),
)

#: A language is recognised if at least this share of all words are its stop words, and the next
#: language has at most this share of that.
LEAST, AHEAD = 0.05, 0.85
#: How many stems of single words are kept in memory.
KEPT_STEMS = 1 << 16

#: Words that say little about what a text is about. Searches leave them out, and they show which
#: language a text is in. Without accents, as all words are compared. English: Lucene's list.
_STOP = {
    "english": "a an and are as at be but by for if in into is it no not of on or such that the "
    "their then there these they this to was will with",
    "german": "der die das den dem des ein eine einen einem einer und oder aber ist sind war im in "
    "an am auf aus bei mit nach von vom zu zum zur fur uber nicht auch als wie es er sie sich wird "
    "werden dass durch",
    "french": "le la les l un une des du de d et ou mais est sont dans en au aux sur par pour "
    "avec sans que qui ne pas ce cette ces il elle ils se son sa ses plus",
    "spanish": "el la los las un una unos unas de del y o pero es son era en al a por para con sin "
    "que no se su sus lo como mas este esta",
    "italian": "il lo la i gli le l un uno una di del della dei delle e o ma sono era in nel nella "
    "al alla da dal con per su non che si come piu questo questa",
    "portuguese": "o a os as um uma de do da dos das e ou mas sao era em no na nos nas ao por para "
    "com sem que nao se seu sua como mais este esta",
    "dutch": "de het een en of maar is zijn was in op aan bij met naar van voor te dat die niet "
    "ook als er ze hij deze dit wordt worden door",
    "swedish": "en ett den det de och eller men ar var i pa av for till med fran om att som inte "
    "sig han hon har kan vid",
    "danish": "en et den det de og eller men er var i pa af for til med fra om at som ikke sig han "
    "hun har kan ved",
    "norwegian": "en ei et den det de og eller men er var i pa av for til med fra om a at som ikke "
    "seg han hun har kan ved",
    "finnish": "ja tai mutta on ovat oli ei se ne han he joka jotka etta kun kuin myos niin sen "
    "mukaan mita",
    "hungarian": "a az egy es vagy de van volt nem is hogy ez azt ha meg csak mint el ki",
    "romanian": "un o si sau dar este sunt era in la pe cu din de nu ca care se sa pentru mai prin",
    "polish": "i w na z do o nie to jest sa byl sie ze jak oraz dla od po za przez lub ale",
    "turkish": "ve veya ama bir bu su o da de ile icin gibi cok daha ne mi en olarak",
    "russian": "и в во на с со к по из у о от до не но а или что как это он она они его за для же "
    "был была бы так",
}
STOP: Mapping[str, frozenset[str]] = {name: frozenset(w.split()) for name, w in _STOP.items()}
_SAID_BY: Mapping[str, tuple[str, ...]] = {
    word: tuple(name for name, said in STOP.items() if word in said)
    for word in {w for said in STOP.values() for w in said}
}
_stemmers = threading.local()


def stop_words(language: str) -> frozenset[str]:
    """The words of a language that say little; none are known of some languages."""
    return STOP.get(language, frozenset())


def stem_all(words: Sequence[str], language: str) -> list[str]:
    """The stem of each word, as words are compared: without case and accents."""
    return list(words) if language == NONE else list(_stemmer(language).stemWords(words))


def stem_of(language: str) -> Callable[[str], str]:
    """A function from a word to its stem, which remembers stems: for texts that are shown."""
    return str if language == NONE else _remembering(language)


@lru_cache
def _remembering(language: str) -> Callable[[str], str]:
    return lru_cache(KEPT_STEMS)(lambda word: str(_stemmer(language).stemWord(word)))


def _stemmer(language: str):  # type: ignore[no-untyped-def]
    """The stemmer of this thread: several threads must not share one."""
    import Stemmer

    if not hasattr(_stemmers, language):
        # It keeps nothing itself: whole vocabularies pass through it once.
        setattr(_stemmers, language, Stemmer.Stemmer(language, 0))
    return getattr(_stemmers, language)


def language_of(words: Iterable[str]) -> str:
    """The language of some words, in the form that searches compare."""
    said, every = dict.fromkeys(STOP, 0), 0
    for word in words:
        every += 1
        for name in _SAID_BY.get(word, ()):
            said[name] += 1
    return recognised(said, every)


def recognised(said: Mapping[str, int], every: int) -> str:
    """The language whose stop words are clearly the most frequent, or `none`.

    Args:
        said: language → how many of the words are its stop words.
        every: how many words there are.
    """
    # Ties go to the first by name, so that the answer depends on nothing but the numbers.
    first, second = sorted(said, key=lambda name: (-said[name], name))[:2]
    clear = said[first] >= LEAST * every and said[second] <= AHEAD * said[first]
    return first if said[first] and clear else NONE
