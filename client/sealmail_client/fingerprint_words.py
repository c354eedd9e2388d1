"""Fingerprints as words to be read aloud, and back.

Byte b is word number b of the list, so a fingerprint is twenty words. The list is in
alphabetical order; its words have four to eight letters, no two begin with the same three, and
three letters must be changed to turn one into another: a slip of ear or pen makes no other word.
The list is part of the interface between users: a change makes two versions disagree.
"""

import re

from sealmail_protocol.keys import KEY_BYTES, KeyId

_LIST = """
    acorn album alpine amber anchor angel apple apron artist atlas autumn avocado badge balcony
    bamboo banana barrel basket beacon bicycle biscuit blossom bonfire bottle branch bread
    bronze buffalo bundle butter cabin cactus camel canyon captain carpet castle cedar cello
    cherry chimney circle citrus clover cobalt coffee copper cotton cousin coyote cradle cricket
    crystal cupcake cushion dancer decade denim desert diamond doctor dolphin domino donkey
    dragon drummer duckling eagle echo eclipse elbow elephant emerald empire engine envelope
    evening fabric family farmer feather fiddle finger firefly flamingo flute folder forest
    fossil fountain freckle frozen galaxy garden ghost giraffe glacier goblet gorilla granite
    guitar harbor hedgehog helmet hiking holiday horizon hotel humble iceberg igloo indigo
    infant insect island ivory jaguar jasmine jigsaw journey juniper justice kayak kennel
    keyboard kidney kingdom kitchen kiwi knight koala ladder lagoon lantern lemon leopard
    library lilac linen lizard lobster locket lunch magnet mango marble meadow melody mermaid
    meteor milk mirror mitten morning mosaic muffin museum napkin needle nephew nickel nutmeg
    oasis ocean octopus olive onion opera orange orchid ostrich oxygen palace panda paper parrot
    peanut pebble pelican pencil piano picnic pigeon pillow poem polar potato prairie pretzel
    pumpkin puzzle pyramid quartz rabbit radio raven recipe reindeer ribbon rubber salmon
    sapphire saturn scarf school scooter shepherd silver skater sleigh snail soccer spider
    squirrel stable stone sugar sunset swallow tailor teapot temple tennis thunder toast topaz
    tortoise tractor trumpet tulip tundra turkey ukulele umbrella unicorn urban valley vanilla
    village violin visitor volcano voyage vulture waffle walnut weaver whale whistle window
    woolen wren yard yogurt zebra zigzag
"""
WORDS = tuple(_LIST.split())
_NUMBERS = {word: number for number, word in enumerate(WORDS)}
_ROW = 5


def fingerprint_words(key_id: KeyId) -> tuple[str, ...]:
    """Return the twenty words of a fingerprint."""
    return tuple(WORDS[byte] for byte in key_id.raw)


def parse_words(text: str) -> KeyId:
    """Read twenty words, whatever case and punctuation; ``ValueError`` names what is none."""
    words = re.findall(r"[^\W\d_]+", text.lower())
    for word in words:
        if word not in _NUMBERS:
            raise ValueError(f"{word!r} is not among the words that fingerprints are made of")
    if len(words) != KEY_BYTES:
        raise ValueError(f"{len(words)} words, where a fingerprint has {KEY_BYTES}")
    return KeyId(bytes(_NUMBERS[word] for word in words))


def word_rows(key_id: KeyId) -> tuple[str, ...]:
    """Return the words in rows of five, each word in its column, as they are best read out."""
    words = [f"{word:<8}" for word in fingerprint_words(key_id)]
    return tuple(
        "  ".join(words[start : start + _ROW]).rstrip() for start in range(0, len(words), _ROW)
    )


def hex_groups(key_id: KeyId) -> str:
    """Return the forty hex digits in groups of four, as gpg prints them."""
    return " ".join(re.findall("....", key_id.hex))
