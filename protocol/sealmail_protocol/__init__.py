"""The wire protocol and block formats: bytes to values and back, with every rule of form.

Nothing here touches a socket, a file, a clock or a source of randomness.
"""
