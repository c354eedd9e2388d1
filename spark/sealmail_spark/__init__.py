"""Audits of block stores with Spark."""
