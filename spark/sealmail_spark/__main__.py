"""``python -m sealmail_spark`` is ``sealmail-audit``."""

from sealmail_spark.cli import main

main()
