"""Languages: PyStemmer's stems, and which language a text is in."""

from __future__ import annotations

import threading

import pytest
import Stemmer

from lakewake.model.languages import LANGUAGES, NONE, STOP, language_of, stem_all, stem_of
from lakewake.model.words import stems, words_of

#: Sentences of the Universal Declaration of Human Rights.
TEXTS = {
    "english": "All human beings are born free and equal in dignity and rights. They are endowed "
    "with reason and conscience and should act towards one another in a spirit of brotherhood.",
    "german": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit "
    "Vernunft und Gewissen begabt und sollen einander im Geist der Brüderlichkeit begegnen.",
    "french": "Tous les êtres humains naissent libres et égaux en dignité et en droits. Ils sont "
    "doués de raison et de conscience et doivent agir les uns envers les autres.",
    "spanish": "Todos los seres humanos nacen libres e iguales en dignidad y derechos y, dotados "
    "como están de razón y conciencia, deben comportarse fraternalmente los unos con los otros.",
    "italian": "Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Essi sono "
    "dotati di ragione e di coscienza e devono agire gli uni verso gli altri.",
    "dutch": "Alle mensen worden vrij en gelijk in waardigheid en rechten geboren. Zij zijn "
    "begiftigd met verstand en geweten, en behoren zich jegens elkander in een geest te gedragen.",
    "russian": "Все люди рождаются свободными и равными в своем достоинстве и правах. Они наделены "
    "разумом и совестью и должны поступать в отношении друг друга в духе братства.",
}


def test_the_languages_are_those_of_pystemmer():
    # `porter` is an older stemmer for English, `dutch_porter` for Dutch.
    assert set(LANGUAGES) == set(Stemmer.algorithms()) - {"porter", "dutch_porter"}
    assert set(STOP) <= set(LANGUAGES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_stems_are_those_of_pystemmer(language: str):
    words = words_of(" ".join(TEXTS.values()))
    expected = Stemmer.Stemmer(language).stemWords(words)
    assert stem_all(words, language) == expected
    assert [stem_of(language)(word) for word in words] == expected
    assert stem_all(words, NONE) == words


@pytest.mark.parametrize("language", TEXTS)
def test_a_language_is_recognised_by_its_stop_words(language: str):
    assert language_of(words_of(TEXTS[language])) == language


@pytest.mark.parametrize("text", ["", "red jacket waterproof", "葡萄酒 42", "en", "de la"])
def test_a_text_in_no_clear_language_has_none(text: str):
    assert language_of(words_of(text)) == NONE


def test_every_stop_word_has_the_form_that_words_are_compared_in():
    for language, words in STOP.items():
        assert all(words_of(word) == [word] for word in words), language


def test_several_threads_find_the_same_stems():
    words = words_of(TEXTS["english"]) * 300
    found: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda: found.append(stem_all(words, "english"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [Stemmer.Stemmer("english").stemWords(words)] * 4


def test_stems_of_a_text_leave_out_the_stop_words_of_its_language():
    assert stems("The jackets are warmer", "english") == {"jacket", "warmer"}
    assert stems("Die Jacken sind warm", "german") == {"jack", "warm"}
