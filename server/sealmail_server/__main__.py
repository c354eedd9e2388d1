"""``python -m sealmail_server`` is ``sealmaild``."""

from sealmail_server.cli import main

main()
