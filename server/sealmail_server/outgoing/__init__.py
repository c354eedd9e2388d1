"""Blocks of our users on their way to other servers: taken, kept, delivered, given up."""
