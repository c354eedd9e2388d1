"""Keys are twenty bytes, and of different kinds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sealmail_protocol.keys import AckHash, BlockKey, DataKeyHasher, KeyId, data_key


@pytest.mark.parametrize("text", ["", "0" * 39, "0" * 41, "g" * 40, "٣" * 40, " " + "0" * 39])
def test_a_key_is_forty_hex_digits(text: str) -> None:
    """Of either case, and nothing else."""
    with pytest.raises(ValueError, match="40 hex"):
        BlockKey.from_hex(text)


def test_keys_of_different_kinds_are_never_equal() -> None:
    """A key id is not a block key, though its bytes may be the same."""
    raw = bytes(range(20))
    assert len({KeyId(raw), BlockKey(raw), AckHash(raw)}) == 3
    assert str(KeyId(raw)) == raw.hex().upper()
    assert raw.hex().upper() in repr(BlockKey(raw))
    assert raw.hex() not in repr(AckHash(raw)).lower()
    with pytest.raises(ValueError, match="19 bytes"):
        KeyId(raw[1:])


@given(st.lists(st.binary(max_size=30)))
def test_a_key_is_hashed_in_chunks_as_whole(chunks: list[bytes]) -> None:
    """The cuts do not matter."""
    hasher = DataKeyHasher()
    for chunk in chunks:
        hasher.update(chunk)
    assert hasher.key() == data_key(b"".join(chunks))
