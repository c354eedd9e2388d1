"""The asyncio link between peers: TLS, pins, dialing and typed calls on a remote server."""
