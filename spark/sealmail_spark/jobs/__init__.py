"""The audits: each a pure step from data frames to findings and figures."""
