"""What a run's records say of its configuration: the payload they name, and what is read of it."""

from __future__ import annotations

import apsw
import msgspec

from trioagent.errors import JournalCorruptError

from . import sqlite
from .fold import Fold


class _SystemOnly(msgspec.Struct):
    system: str = ""


def system_of(connection: apsw.Connection, state: Fold) -> str:
    """The recorded system prompt of the run's own scope.

    Raises:
        JournalCorruptError: the configuration is missing or altered.
    """
    scope = state.scopes.get("")
    if scope is None or not scope.config:
        return ""
    config = sqlite.load_blob(connection, scope.config)
    if config is None:
        raise JournalCorruptError("the run's configuration is missing or altered")
    return msgspec.json.decode(config, type=_SystemOnly).system
