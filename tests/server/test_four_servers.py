"""From a sender's pair to a recipient's pair, with each of the four servers down in turn."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import pytest
from tests.server.mailing import RECIPIENT, SENDER, queue_of, send_data, send_mail
from tests.server.pairs import Side, on, running_pair, until
from tests.server.users import message, now

from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.keys import data_key, mailbox_key
from sealmail_protocol.replies import QueueRow, QueueState, Word

# A mirror steps in sooner than it would in life.
LINES = ("allow_private_targets = true", "takeover_seconds = 2")


@dataclass
class Town:
    """Two pairs, and a user at each; the tests number their mail."""

    sender: list[Side]
    recipient: list[Side]
    auth_keys: dict[str, str] = field(default_factory=dict)
    mails: int = 0

    @property
    def servers(self) -> dict[str, Side]:
        """Return the servers by the names that schedules use."""
        return dict(zip(("s1", "s2", "r1", "r2"), (*self.sender, *self.recipient), strict=True))

    def login(self, name: str) -> tuple[str, str]:
        """Return how a user logs in."""
        return name, self.auth_keys[name]

    def knows(self, side: Side, userid: str) -> bool:
        """Tell whether a user can log in at a server."""

        async def log_in(remote: RemoteServer) -> bool:
            return await remote.login(*self.login(userid))

        return on(side, log_in)

    def rows(self, side: Side, data: bytes) -> list[QueueRow]:
        """Return what the sender is told of the data and the mail that names it."""
        rows = on(side, queue_of, *self.login(SENDER.hex))
        keys = {data_key(data)}
        return [row for row in rows if row.key in keys or row.type == "message-announcement"]

    def mail_waits(self, side: Side) -> bool:
        """Tell whether a server knows of a mail that is still to go."""
        rows = on(side, queue_of, *self.login(SENDER.hex))
        mails = [row for row in rows if row.type == "message-announcement"]
        return any(row.state is QueueState.WAITING for row in mails)

    def has_mail(self, side: Side, data: bytes) -> bool:
        """Tell whether the recipient finds mail and data at one of his servers."""

        async def look(remote: RemoteServer) -> bool:
            lines = await remote.get(mailbox_key("0", RECIPIENT))
            wanted = f"DataBlock: {data_key(data)}".lower().encode()
            if lines is None or wanted not in {line.lower() for line in lines}:
                return False
            got: list[bytes] = []
            return await remote.get_data(data_key(data), got.append) is not None

        return on(side, look, *self.login(RECIPIENT.hex))


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """Run two pairs, each with a user."""
    with ExitStack() as stack:
        pairs = [
            stack.enter_context(running_pair(tmp_path_factory.mktemp(name), *LINES))
            for name in ("sender", "recipient")
        ]
        town = Town(pairs[0], pairs[1])
        for side, user in ((town.sender[0], SENDER), (town.recipient[0], RECIPIENT)):
            town.auth_keys[user.hex] = side.operate("account", "add", user.hex).strip()
        for side, user in ((town.sender[1], SENDER), (town.recipient[1], RECIPIENT)):
            until(partial(town.knows, side, user.hex), "the account to reach the other server")
        yield town


def hand_in(town: Town, side: Side, data: bytes, seconds: int) -> None:
    """Give data and a mail for the recipient's pair to a server, not to go before some seconds."""
    servers = ",".join(str(each.address) for each in town.recipient)
    line, after = f"Post-To: server={servers}", now() + timedelta(seconds=seconds)

    async def give(remote: RemoteServer) -> None:
        assert await send_data(remote, data, line) is Word.DONE
        mail = message(RECIPIENT, data=data)
        assert await send_mail(remote, mail, line, after=after) is Word.DONE

    on(side, give, *town.login(SENDER.hex))


def all_delivered(town: Town, side: Side, data: bytes) -> bool:
    """Tell whether a server tells the sender that everything has gone."""
    rows = town.rows(side, data)
    return bool(rows) and {row.state for row in rows} == {QueueState.DELIVERED}


@pytest.mark.parametrize(
    "down",
    [
        pytest.param("s1", marks=pytest.mark.schedule),
        pytest.param("r1", marks=pytest.mark.schedule),
        pytest.param("s2", marks=pytest.mark.long),
        pytest.param("r2", marks=pytest.mark.long),
    ],
)
def test_mail_arrives_with_one_of_four_servers_down(town: Town, down: str) -> None:
    """The recipient finds it at both of his servers in the end, and both tell the sender so."""
    town.mails += 1
    data = f"mail {town.mails} with {down} down".encode() * 5000
    first, second = town.sender
    fallen = town.servers[down]
    if down == "s1":
        # Its mirror has the rows, and delivers the mail that was to go later.
        hand_in(town, first, data, 6)
        until(lambda: town.mail_waits(second), "the mirror to have the mail")
        fallen.kill()
    else:
        fallen.kill()
        hand_in(town, first, data, 0)
    standing = [side for side in town.recipient if side is not fallen]
    until(lambda: town.has_mail(standing[0], data), "the mail to arrive")
    fallen.start()
    for side in town.recipient:
        until(partial(town.has_mail, side, data), f"{side.directory} to have it")
    for side in town.sender:
        until(partial(all_delivered, town, side, data), f"{side.directory} to know it")


def test_the_sender_is_told_by_either_server_what_was_refused(town: Town) -> None:
    """A dead letter at one server of the pair is one at the other, with its reason."""
    line = f"Post-To: server={town.recipient[1].address}"

    async def give(remote: RemoteServer) -> None:
        mail = message(RECIPIENT, mailbox="9")
        assert await send_mail(remote, mail, line) is Word.DONE

    on(town.sender[1], give, *town.login(SENDER.hex))
    for side in town.sender:
        until(partial(is_refused, town, side), f"{side.directory} to know the dead letter")


def is_refused(town: Town, side: Side) -> bool:
    """Tell whether a server tells the sender of a refused mail."""
    return "recipient" in {row.code for row in on(side, queue_of, *town.login(SENDER.hex))}
