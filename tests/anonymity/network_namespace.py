"""A network namespace with one way out, and the kernel's count of all that leaves otherwise."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

OUTSIDE, INSIDE = "10.200.77.1", "10.200.77.2"
_NUMBERS = count()
# The kernel's own words about IPv6 neighbours are no traffic of a program.
_RULES = """\
table inet leak {{
    counter leaked {{ }}
    chain out {{
        type filter hook output priority 0; policy accept;
        icmpv6 type {{ nd-router-solicit, nd-neighbor-solicit, mld2-listener-report }} accept
        {allowed}
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
        listed = _run(*self.command(["nft", "-j", "list", "counter", "inet", "leak", "leaked"]))
        return next(
            int(each["counter"]["packets"])
            for each in json.loads(listed)["nftables"]
            if "counter" in each
        )


@contextmanager
def namespace(*allowed: str) -> Iterator[Namespace]:
    """Make a namespace with a route to everywhere; ``allowed`` are nft rules of what may go."""
    place = Namespace(f"sealmail-{os.getpid()}-{next(_NUMBERS)}")
    outer, inner = f"sm{os.getpid() % 100_000}o", f"sm{os.getpid() % 100_000}i"
    _run("ip", "netns", "add", place.name)
    try:
        _run("ip", "link", "add", outer, "type", "veth", "peer", "name", inner)
        _run("ip", "link", "set", inner, "netns", place.name)
        _run("ip", "address", "add", f"{OUTSIDE}/30", "dev", outer)
        _run("ip", "link", "set", outer, "up")
        for line in (
            f"ip address add {INSIDE}/30 dev {inner}",
            f"ip link set {inner} up",
            "ip link set lo up",
            f"ip route add default via {OUTSIDE}",
        ):
            _run(*place.command(line.split()))
        rules = _RULES.format(allowed="\n        ".join(f"{rule} accept" for rule in allowed))
        _run(*place.command(["nft", "-f", "-"]), given=rules)
        yield place
    finally:
        _run("ip", "netns", "delete", place.name)


def _run(*command: str, given: str = "") -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout
