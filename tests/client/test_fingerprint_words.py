"""Fingerprints as words: a list that stands against mishearing, and its way back."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealmail_client.fingerprint_words import (
    WORDS,
    fingerprint_words,
    hex_groups,
    parse_words,
    word_rows,
)
from sealmail_protocol.keys import KeyId

KEY = KeyId.from_hex("101BD94616CC85794587C4B9EE0A877720321464")


def changes(one: str, other: str) -> int:
    """Return how many letters must be changed, added or dropped to make one word the other."""
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, start=1):
        above, row[0] = row[0], number
        for place, another in enumerate(other, start=1):
            above, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, above + (letter != another)),
            )
    return row[-1]


def test_the_list_has_a_word_for_every_byte_by_its_rule() -> None:
    """In order, of four to eight letters, and no two with the same beginning."""
    assert len(WORDS) == 256
    assert list(WORDS) == sorted(WORDS)
    assert len({word[:3] for word in WORDS}) == 256
    assert all(word.isascii() and word.islower() and 4 <= len(word) <= 8 for word in WORDS)


def test_no_slip_of_two_letters_turns_one_word_into_another() -> None:
    """What is misheard is no word at all."""
    assert min(changes(one, other) for one, other in combinations(WORDS, 2)) >= 3


def test_the_list_stays_as_it_is() -> None:
    """Two versions of the program must read the same words for the same key."""
    assert " ".join(fingerprint_words(KEY)) == (
        "barrel buffalo sunset elbow bonfire school lantern justice eclipse leopard recipe polar "
        "village autumn leopard journey camel cradle biscuit guitar"
    )


@given(st.binary(min_size=20, max_size=20))
def test_words_lead_back_to_their_key(raw: bytes) -> None:
    """In capitals, with commas, in rows: however they were written down."""
    key_id = KeyId(raw)
    assert parse_words(", ".join(fingerprint_words(key_id)).upper()) == key_id
    assert parse_words("\n".join(word_rows(key_id))) == key_id
    assert bytes.fromhex(hex_groups(key_id)) == raw


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "0 words"),
        (" ".join(fingerprint_words(KEY)[:19]), "19 words"),
        (" ".join((*fingerprint_words(KEY), "acorn")), "21 words"),
        (" ".join((*fingerprint_words(KEY)[:19], "aardvark")), "'aardvark'"),
    ],
)
def test_what_is_no_fingerprint_is_refused_by_name(text: str, complaint: str) -> None:
    """The listener is told which word to ask for again."""
    with pytest.raises(ValueError, match=complaint):
        parse_words(text)
