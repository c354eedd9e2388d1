"""Where others see this node: what several of them agree on."""

from collections import Counter, OrderedDict, defaultdict

from sealmail_server.dht.datagrams import Place
from sealmail_server.dht.neighbours import network_of

# So many have to say the same; one may lie, or sit behind the same router.
AGREEING = 3
# Those that are heard, the last who answered; a minority of liars among them moves nobody.
_HEARD = 8


class Sightings:
    """One word of each network (of each node, if not ``diverse``), for IPv4 and IPv6 apart."""

    def __init__(self, *, diverse: bool) -> None:
        self._diverse = diverse
        self._words: defaultdict[int, OrderedDict[str, Place]] = defaultdict(OrderedDict)
        self._agreed: dict[int, Place] = {}
        self._last: Place | None = None

    @property
    def place(self) -> Place | None:
        """Return where this node is seen, as far as anybody has said."""
        return next(iter(self._agreed.values()), self._last)

    def is_own(self, place: Place) -> bool:
        """Tell whether several agree that this node itself is there."""
        return place in self._agreed.values()

    def note(self, who: Place, seen: Place) -> bool:
        """Hear one word, and tell whether most say another place now than before."""
        name = network_of(who) if self._diverse else str(who)
        words = self._words[seen.ip.version]
        words.pop(name, None)
        words[name] = self._last = seen
        if len(words) > _HEARD:
            words.popitem(last=False)
        place, saying = Counter(words.values()).most_common(1)[0]
        if saying < AGREEING:
            return False
        before = self._agreed.get(seen.ip.version)
        self._agreed[seen.ip.version] = place
        return before not in (None, place)
