"""The Sealmail client: identities, sealing, sending and receiving."""
