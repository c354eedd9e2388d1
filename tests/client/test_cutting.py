"""Sealed files are cut into pieces and joined again."""

import hashlib
from pathlib import Path

import pytest

from sealmail_client.cutting import Piece, PieceFile, cut, join, read_piece
from sealmail_client.errors import BadMessage, BadPiece
from sealmail_protocol.keys import BlockKey, data_key

CONTENT = bytes(range(256)) * 4000


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """Return a file that is not a multiple of any piece size."""
    path = tmp_path / "sealed"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def pieces(sealed: Path) -> list[PieceFile]:
    """Return the pieces of the file, each in a file of its own."""
    files = []
    for piece in cut(sealed, 300_000).pieces:
        path = sealed.with_name(piece.key.hex)
        path.write_bytes(read_piece(sealed, piece))
        files.append(PieceFile(piece.key, path))
    return files


def test_every_piece_has_the_key_of_its_bytes(sealed: Path) -> None:
    """Every piece has the key of its bytes."""
    message = cut(sealed, 300_000)
    assert [piece.size for piece in message.pieces] == [300_000, 300_000, 300_000, 124_000]
    assert [piece.offset for piece in message.pieces] == [0, 300_000, 600_000, 900_000]
    for piece in message.pieces:
        assert piece.key == data_key(read_piece(sealed, piece))


def test_the_message_hash_is_sha1_of_the_whole(sealed: Path) -> None:
    """The message hash is sha1 of the whole."""
    assert cut(sealed).message_hash.raw == hashlib.sha1(CONTENT).digest()


def test_a_small_mail_is_one_piece_whose_key_is_the_message_hash(sealed: Path) -> None:
    """A small mail is one piece whose key is the message hash."""
    message = cut(sealed)
    assert message.pieces == (Piece(message.message_hash, 0, len(CONTENT)),)


def test_a_file_of_exactly_two_pieces_has_no_empty_third(sealed: Path) -> None:
    """A file of exactly two pieces has no empty third."""
    assert len(cut(sealed, len(CONTENT) // 2).pieces) == 2


def test_a_piece_of_a_shortened_file_is_refused(sealed: Path) -> None:
    """A piece of a shortened file is refused."""
    piece = cut(sealed).pieces[0]
    sealed.write_bytes(CONTENT[:-1])
    with pytest.raises(BadPiece):
        read_piece(sealed, piece)


def test_joined_pieces_are_the_sealed_file(pieces: list[PieceFile], tmp_path: Path) -> None:
    """Joined pieces are the sealed file."""
    join(pieces, data_key(CONTENT), tmp_path / "joined")
    assert (tmp_path / "joined").read_bytes() == CONTENT


@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_bad_piece_is_named(pieces: list[PieceFile], tmp_path: Path, damage: str) -> None:
    """A bad piece is named."""
    if damage == "missing":
        pieces[2].path.unlink()
    else:
        pieces[2].path.write_bytes(b"something else")
    with pytest.raises(BadPiece, match=damage) as caught:
        join(pieces, data_key(CONTENT), tmp_path / "joined")
    assert caught.value.key == pieces[2].key
    assert not (tmp_path / "joined").exists()


def test_good_pieces_in_the_wrong_order_are_refused(
    pieces: list[PieceFile], tmp_path: Path
) -> None:
    """Good pieces in the wrong order are refused."""
    with pytest.raises(BadMessage, match="MessageHash") as caught:
        join(pieces[::-1], data_key(CONTENT), tmp_path / "joined")
    assert not isinstance(caught.value, BadPiece)
    assert not (tmp_path / "joined").exists()


def test_no_pieces_are_no_mail(tmp_path: Path) -> None:
    """No pieces are no mail."""
    with pytest.raises(BadMessage):
        join([], BlockKey(bytes(20)), tmp_path / "joined")
