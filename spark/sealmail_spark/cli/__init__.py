"""``sealmail-audit``: audits of block stores, here or on a cluster."""

import sys


def main() -> None:
    """Run the program, or say what has to be installed for it."""
    try:
        from sealmail_spark.cli.program import main as program
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("apsw", "click", "pandas", "py4j", "pyarrow", "pyspark"):
            raise
        way_out = "install sealmail[spark], or `make install-spark` in a checkout"
        print(f"sealmail-audit: {missing} is missing: {way_out}", file=sys.stderr)
        sys.exit(2)
    from sealmail_spark.session import close_session

    try:
        program()
    finally:
        close_session()
