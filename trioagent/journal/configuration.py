"""What a run's records say of its configuration: the payload they name, and what is read of it."""

from __future__ import annotations

import apsw
import msgspec

from trioagent.errors import JournalCorruptError

from . import sqlite
from .fold import Fold
from .records import Changed, Record, Started, read_data


def config_of(record: Record) -> bytes:
    """The hash of the configuration that a record names within its data, or none.

    It keeps that payload in the file, as a record's own large data do by their column.
    """
    if record.kind == "run.started":
        return read_data(record, Started).config
    if record.kind == "signal" and record.tag == "changed":
        return read_data(record, Changed).config
    return b""


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
