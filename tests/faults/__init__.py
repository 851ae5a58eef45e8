"""Every fault a journal may meet, one after another, under the product's own code.

    python -m tests.faults

A SQLite VFS (`vfs`) stands between the product and the file system.  It is registered as SQLite's
default for as long as a run takes, so the product opens its files through it without knowing.  It
writes a tape: every write with its bytes, every truncation, sync, creation and deletion, and among
them what the run did to the world outside and what it promised to somebody.  Three sweeps use it.

Power cuts (`power`)
    After each entry of the tape the power goes.  `disk` knows what is durable then, and makes of
    what is not every state this sweep stands for: none of the unsynced operations arrived, all of
    them, all but one, all with one torn at a sector's edge.  A write leaves the bytes outside its
    range alone (SQLite assumes no less, its "powersafe overwrite"); the shared-memory file is gone.

Input and output (`io_faults`)
    Each call fails in turn: a full disk, a failed write, read, sync, truncation, deletion, open or
    lock; once, or from then on until the journal is closed.

Kills (`kills`)
    A real process kills itself with SIGKILL before each entry of the tape.

What must hold afterwards is the same for all three and stands in `promise`.
"""
