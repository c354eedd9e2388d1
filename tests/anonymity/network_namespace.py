"""A network namespace with one way out, and the kernel's count of all that leaves otherwise."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

OUTSIDE, INSIDE = "10.200.77.1", "10.200.77.2"
_OUTSIDE_6, _INSIDE_6 = "fd00:77::1", "fd00:77::2"
_NUMBERS = count()
# The kernel's own words about IPv6 neighbours are no traffic of a program.
_NEIGHBOURS = "nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert, mld2-listener-report"
_RULES = """\
table inet leak {{
    counter leaked {{ }}
    counter leaked_by_ipv6 {{ }}
    chain out {{
        type filter hook output priority 0; policy accept;
        icmpv6 type {{ {neighbours} }} accept
        {allowed}
        meta nfproto ipv6 counter name leaked_by_ipv6
        counter name leaked drop
    }}
}}
"""


@dataclass(frozen=True)
class Namespace:
    """A place where programs run, and what they sent past the allowed way."""

    name: str

    def command(self, command: Sequence[str]) -> list[str]:
        """Return a command line that runs inside."""
        return ["ip", "netns", "exec", self.name, *command]

    @property
    def leaked(self) -> int:
        """Return how many packets were sent that no rule allows; each was dropped."""
        return self._counted("leaked")

    @property
    def leaked_by_ipv6(self) -> int:
        """Return how many of them were of IPv6."""
        return self._counted("leaked_by_ipv6")

    def _counted(self, counter: str) -> int:
        listed = _run(*self.command(["nft", "-j", "list", "counter", "inet", "leak", counter]))
        return next(
            int(each["counter"]["packets"])
            for each in json.loads(listed)["nftables"]
            if "counter" in each
        )


@contextmanager
def namespace(*allowed: str) -> Iterator[Namespace]:
    """Make a namespace with routes to everywhere; ``allowed`` are nft rules of what may go."""
    place = Namespace(f"sealmail-{os.getpid()}-{next(_NUMBERS)}")
    outer, inner = f"sm{os.getpid() % 100_000}o", f"sm{os.getpid() % 100_000}i"
    _run("ip", "netns", "add", place.name)
    try:
        _run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
        _run("ip", "link", "set", inner, "netns", place.name)
        _run("ip", "address", "add", f"{OUTSIDE}/30", "dev", outer)
        _run("ip", "address", "add", f"{_OUTSIDE_6}/64", "dev", outer, "nodad")
        _run("ip", "link", "set", outer, "up")
        for line in (
            f"ip address add {INSIDE}/30 dev {inner}",
            f"ip address add {_INSIDE_6}/64 dev {inner} nodad",
            f"ip link set {inner} up",
            "ip link set lo up",
            f"ip route add default via {OUTSIDE}",
            f"ip -6 route add default via {_OUTSIDE_6}",
        ):
            _run(*place.command(line.split()))
        rules = _RULES.format(
            neighbours=_NEIGHBOURS,
            allowed="\n        ".join(f"{rule} accept" for rule in allowed),
        )
        _run(*place.command(["nft", "-f", "-"]), given=rules)
        yield place
    finally:
        _run("ip", "netns", "delete", place.name)


def _run(*command: str, given: str = "") -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout
