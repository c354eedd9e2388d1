"""Sealed files are cut into pieces and joined again."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sealmail_client.cutting import JoinedPieces, Piece, PieceFile, cut, damaged, read_piece
from sealmail_client.errors import BadMessage, BadPiece
from sealmail_protocol.keys import data_key

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


def test_each_piece_is_told_as_soon_as_it_is_cut(sealed: Path) -> None:
    """They are told in order, and the same as are returned."""
    told: list[Piece] = []
    message = cut(sealed, 300_000, found=told.append)
    assert tuple(told) == message.pieces


def read_all(joined: JoinedPieces) -> bytes:
    """Read a stream to its end."""
    return b"".join(iter(lambda: joined.read(100_000), b""))


def test_joined_pieces_are_the_sealed_file(pieces: list[PieceFile]) -> None:
    """The whole has the hash that is announced."""
    joined = JoinedPieces.of(pieces)
    assert read_all(joined) == CONTENT
    assert joined.message_hash() == data_key(CONTENT)


def test_the_hash_is_over_what_nobody_has_read_too(pieces: list[PieceFile]) -> None:
    """Who stops reading early still learns whether the whole is right."""
    joined = JoinedPieces.of(pieces)
    joined.read(10)
    assert joined.message_hash() == data_key(CONTENT)


def test_a_reader_waits_for_pieces_that_are_still_to_come(pieces: list[PieceFile]) -> None:
    """One thread reads what another appends, until it says that this was all."""
    joined = JoinedPieces()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_all, joined)
        for piece in pieces:
            joined.append(piece)
        joined.end()
        assert reading.result() == CONTENT


def test_a_reader_learns_that_the_rest_does_not_come(pieces: list[PieceFile]) -> None:
    """He must not take what came for the whole."""
    joined = JoinedPieces()
    joined.append(pieces[0])
    joined.give_up()
    with pytest.raises(BadMessage):
        read_all(joined)


def test_bad_pieces_are_named(pieces: list[PieceFile]) -> None:
    """What is missing and what is damaged, and none of the good ones."""
    pieces[1].path.unlink()
    pieces[2].path.write_bytes(b"something else")
    assert [(one.key, str(one)[-7:]) for one in damaged(pieces)] == [
        (pieces[1].key, "missing"),
        (pieces[2].key, "damaged"),
    ]
    with pytest.raises(BadPiece, match="missing"):
        read_all(JoinedPieces.of(pieces))


def test_good_pieces_in_the_wrong_order_have_another_hash(pieces: list[PieceFile]) -> None:
    """Each fits its key, and all together are not what was announced."""
    assert damaged(pieces[::-1]) == []
    assert JoinedPieces.of(pieces[::-1]).message_hash() != data_key(CONTENT)
