"""The exceptions that callers may want to catch."""

from __future__ import annotations


class InputError(ValueError):
    """The caller's data or settings were refused; nothing was changed."""


class NotReadyError(InputError):
    """There is nothing yet to predict from."""


class UnknownPartError(InputError):
    """A saved learner has a part that is not defined here; import the module that defines it."""


class NonFiniteLossError(RuntimeError):
    """Learning diverged. The batch was not learned: the learner is as it was before."""


class NonFiniteStateError(ValueError):
    """A state holds NaN or infinite values. It is neither saved nor restored; an earlier save may be sound."""
