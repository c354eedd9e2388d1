"""The two tables say what the design says, for every type and command there is."""

import pytest
from tests.protocol.vector_files import block_vectors

from sealmail_protocol import commands as c
from sealmail_protocol.block_codec import parse_block
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.policy import (
    BLOCK_POLICY,
    COMMAND_POLICY,
    RATE_LIMITED,
    Merge,
    Poster,
    Reader,
    Role,
)

TABLE = """
key-announcement     65536   bd,24,2 bd,24,2 OWNER  ANYONE    31 REVOKED_THEN_NEWEST
address-claim        16384   bd,24,2 bd,24,2 OWNER  ANYONE    10 NEWEST_OF_EACH_KEYID
message-announcement 1048576 bd,8,2  bd,20,2 ANYONE RECIPIENT 10 SET
acknowledgment       1024    bd,16,2 bd,20,2 ANYONE LOGGED_IN 10 NEWEST
data                 8388608 bd,8,2  bd,20,2 ANYONE LOGGED_IN 10 NEWEST
"""
WHO = """
before anonymous user administrator replication: StartTls Quit Ping Capabilities
anonymous: Login
anonymous user administrator replication: SelfTest DnsTxt GetEntangled StoreEntangled GetServer
anonymous user administrator replication: StoreServer AskVerdict GetDhtValue StoreDhtValue
anonymous user administrator replication: ListDhtValues
user: StoreProxy GetProxy AskQueue Drop
replication: Replicate RepLogin PartnerDrop PartnerAccount PartnerQueued PartnerList PartnerPair
replication: PartnerSync PartnerWaiting
administrator: AddLogin RmLogin GenLogin Shutdown
"""
LIMITED = """
SelfTest DnsTxt AskVerdict
GetEntangled StoreEntangled GetDhtValue ListDhtValues StoreDhtValue
"""
ROLES = {role.name.lower().removesuffix("_tls"): role for role in Role}


@pytest.mark.parametrize("line", TABLE.strip().splitlines())
def test_a_row_of_the_block_table(line: str) -> None:
    """Sizes, floors, posters, readers, ages and merges."""
    kind, size, server, dht, poster, reader, days, merge = line.split()
    row = BLOCK_POLICY[BlockType(kind)]
    assert (row.size, str(row.server_stamp), str(row.dht_stamp)) == (int(size), server, dht)
    assert (row.poster, row.reader, row.merge) == (Poster[poster], Reader[reader], Merge[merge])
    assert row.max_age.days == int(days)


def test_every_type_has_a_row_and_a_parser() -> None:
    """GET looks for types in the order of the table."""
    assert list(BLOCK_POLICY) == list(BlockType) == [line.split()[0] for line in TABLE.split("\n")
                                                     if line]  # fmt: skip
    accepted = [v for v in block_vectors() if v.expected["expect"] == "accepted"]
    assert {parse_block(vector.body(b"\n")).type for vector in accepted} == set(BlockType)


def test_every_command_may_be_used_by_those_of_the_table() -> None:
    """And by nobody else."""
    expected: dict[object, frozenset[Role]] = {}
    for line in WHO.strip().splitlines():
        roles, _, names = line.partition(": ")
        for name in names.split():
            expected[getattr(c, name)] = frozenset(ROLES[role] for role in roles.split())
    assert expected == COMMAND_POLICY


def test_strangers_may_repeat_only_so_often_what_the_table_says() -> None:
    """What costs others something, or us a write; and nothing that delivers mail."""
    assert frozenset(getattr(c, name) for name in LIMITED.split()) == RATE_LIMITED
