"""Types and their names."""

from sealmail_protocol.blocks import BlockType, type_named


def test_type_names_are_exact() -> None:
    """With the one other spelling that originals read."""
    assert type_named("acknowledgement") is BlockType.ACKNOWLEDGMENT
    assert type_named("Data") is None
