"""The Sealmail server: admission, sessions and the operator's program."""
