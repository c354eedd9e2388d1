"""The DHT: blocks that any server may keep and anybody may look up (docs/dht.md)."""
