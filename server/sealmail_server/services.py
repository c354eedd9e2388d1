"""What all sessions of a server share."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from sealmail_server.account_desk import AccountDesk
from sealmail_server.clock_guard import ClockGuard
from sealmail_server.dht.desk import EntangledDesk
from sealmail_server.intake import Intake
from sealmail_server.limits import Limits
from sealmail_server.lookups import Lookups
from sealmail_server.memory import MemoryBudget
from sealmail_server.outgoing.office import SortingOffice
from sealmail_server.partner_desk import PartnerDesk
from sealmail_server.sources import Allowance
from sealmail_server.tls_identity import TlsIdentity
from sealmail_store import BlockStore


@dataclass(frozen=True, slots=True)
class Services:
    """What sessions share; ``stop`` ends the server."""

    store: BlockStore
    intake: Intake
    office: SortingOffice
    desk: AccountDesk
    partner: PartnerDesk
    identity: TlsIdentity
    limits: Limits
    guard: ClockGuard
    requests: Allowance
    failed_logins: Allowance
    lookups: Lookups | None  # none: DNS TXT is switched off
    lookup_requests: Allowance
    memory: MemoryBudget
    clock: Callable[[], datetime]
    stop: Callable[[], None]
    steady_clock: Callable[[], float] = field(default=time.monotonic)
    dht: EntangledDesk | None = None  # none: the DHT is switched off
