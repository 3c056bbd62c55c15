"""The processes behind the identities `pid@host` that Temporal knows workers by."""

import os
import socket


def is_here(identity: str) -> bool:
    """Whether it is a process of this machine."""
    pid, _, host = identity.partition("@")
    return host == socket.gethostname() and pid.isdigit()


def has_ended(identity: str) -> bool:
    """Whether it was a process of this machine that is gone: Temporal lists it for minutes."""
    if not is_here(identity):
        return False
    try:
        os.kill(int(identity.partition("@")[0]), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
