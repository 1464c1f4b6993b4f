"""Exceptions. Each class stands for an exit code of the command."""


class Error(Exception):
    """Base of all exceptions of this package. Its text is one sentence, which says what to do."""

    exit_code: int = 3


class DataError(Error):
    """The data is damaged, or uses something that is not supported."""

    exit_code = 1


class UsageError(Error, ValueError):
    """An argument or a statement is wrong."""

    exit_code = 2


class RefusedError(Error):
    """The system refuses: a missing file, no permission, too little memory, a full disk, a device that cannot be used."""

    exit_code = 3


class NotReadError(Error):
    """What could be read is sound, but a part is not understood, such as a file of another format."""

    exit_code = 4


class RockmillWarning(UserWarning):
    """What a user may not expect, such as where a database's logs are read from."""
