"""What can go wrong, each with one sentence that names the thing, the place and the mend."""

from __future__ import annotations


class AdjudgeError(Exception):
    """A mistake that the caller can mend; the message says how. The command line prints it and exits with code 2."""


class ModelNotFound(AdjudgeError):
    """No model under that name, or it could not be fetched."""


class ModelCorrupt(AdjudgeError):
    """The weights are incomplete, unreadable, or not the ones that were asked for."""


class ModelUnsupported(AdjudgeError):
    """The model cannot run on this engine; the message names the part that stands in the way."""


class LabelError(AdjudgeError, ValueError):
    """Labels that are empty, doubled or ambiguous."""


class PromptError(AdjudgeError, ValueError):
    """A prompt without tokens, or one whose trusted part alone does not fit; `place` is its own among several."""

    place: int | None = None


class QueueFull(AdjudgeError):
    """More requests than the engine was told to keep waiting; none of the call's was taken."""


class CallTooLarge(AdjudgeError):
    """A call that the engine's queue would not take even if it were empty: coming again would not help."""


class NotServing(AdjudgeError):
    """The engine takes no calls now: it is being closed, asleep, or has lost all its replicas."""


class EngineFailed(AdjudgeError):
    """The engine failed at a step, of this call or of another beside it; what was asked for is not to blame."""


class RemoteError(AdjudgeError):
    """A server that is not there, wants something else, or cannot do what it is asked."""


class NoServer(RemoteError):
    """A server that does not answer when it is opened, and may another time."""


def reason(error: BaseException) -> str:
    """The first line of another library's error, short enough to stand inside a sentence."""
    lines = str(error).strip().splitlines()
    return lines[0][:200].rstrip(" .:") if lines else type(error).__name__


def first_of(error: BaseException) -> BaseException:
    """The first that a group of tasks raised, where it is a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
