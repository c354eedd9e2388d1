"""``sealmail-audit``: audits of block stores, here or on a cluster."""

import sys


def main() -> None:
    """Run the program, or say what has to be installed for it."""
    try:
        from sealmail_spark.cli.program import main as program
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("apsw", "click", "pyarrow", "pyspark"):
            raise
        print(f"sealmail-audit: {error.name} is missing: install sealmail[spark]", file=sys.stderr)
        sys.exit(2)
    from sealmail_spark.session import close_session

    try:
        program()
    finally:
        close_session()
