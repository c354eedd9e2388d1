"""The outbox as an auditor may see it: when what became of each message, and nothing it said."""

from collections.abc import Iterator, Sequence

from sealmail_client.outbox import OutgoingMessage
from sealmail_protocol.dates import format_date
from sealmail_protocol.stamps import stamp_bits

LEDGER_VERSION = 1


def ledger_rows(messages: Sequence[OutgoingMessage]) -> Iterator[dict[str, object]]:
    """Yield a row for each recipient of each message.

    Key ids say who; subjects, texts, names and addresses are left out.
    """
    for message in messages:
        for one in message.recipients:
            announcement = one.announcement
            yield {
                "version": LEDGER_VERSION,
                "message": message.number,
                "recipient": one.key_id.hex,
                "state": str(one.stage),
                "composed": format_date(message.composed),
                "sealed": format_date(message.date) if message.date else None,
                "announced": format_date(announcement.date) if announcement else None,
                "sent": format_date(one.sent) if one.sent else None,
                "acknowledged": format_date(one.acknowledged) if one.acknowledged else None,
                "tries": one.tries,
                "next_try": format_date(one.next_try) if one.next_try else None,
                "server": one.server,
                "bytes": sum(block.size for block in message.blocks),
                "blocks": [block.size for block in message.blocks],
                "bits": stamp_bits(announcement) if announcement else None,
                "message_hash": message.message_hash.hex if message.message_hash else None,
            }
