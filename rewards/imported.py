"""What is of the user's own making, by the name that it has in a module: "package.module:name"."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adjudge.engine.errors import AdjudgeError, reason


def is_own(name: object) -> bool:
    """Whether that is such a name, and not one of adjudge's own."""
    return isinstance(name, str) and ":" in name


def imported(name: str, what: str) -> Any:
    """What a module has by that name; `what` says in errors whose name it is.

    The module is imported, and so it runs: a name from afar (a request, a stranger's journal) never comes here. Raises
    AdjudgeError for a module that is not found or fails, and for a name that it has not.
    """
    module, _, path = name.partition(":")
    place = f'{what} is "{name[:80]}"'
    if not all(part.isidentifier() for part in (*module.split("."), *path.split("."))):
        raise AdjudgeError(f"{place}: write package.module:name")
    try:
        value = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise AdjudgeError(
                f"{place}, and {module} needs {error.name}, which is not installed: install it"
            ) from error
        raise AdjudgeError(
            f"{place}, and there is no module {error.name}: run this in its folder, name that in PYTHONPATH, or put it"
            " beside the recipe that names it"
        ) from error
    except Exception as error:  # of the user's own code
        told = _told(error, str(source_of(name)))
        raise AdjudgeError(f"{place}, and importing {module} ends in {told}: mend it there") from error
    holder = module
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            has = ", ".join(one for one in dir(value) if not one.startswith("_"))
            raise AdjudgeError(f"{place}, and {holder} has no {part}: it has {has[:200] or 'nothing'}") from error
        holder = f"{holder}.{part}"
    return value


@contextmanager
def calling(function: Callable[..., Any], name: str) -> Iterator[None]:
    """Within the block, which calls a function of the user's own, what it raises is an AdjudgeError with its place."""
    try:
        yield
    except AdjudgeError:
        raise
    except Exception as error:
        file = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_filename", None)
        raise AdjudgeError(f"{name} ends in {_told(error, file)}: mend it there") from error


def _told(error: Exception, file: str | None = None) -> str:
    """What was raised, and the last line that led to it, of `file` if one did."""
    lines = traceback.extract_tb(error.__traceback__)
    last = ([line for line in lines if line.filename == file] or lines)[-1]
    where = "" if isinstance(error, SyntaxError) else f" ({Path(last.filename).name}, line {last.lineno})"
    return f"{type(error).__name__}: {reason(error)}{where}"


def source_of(name: str) -> Path | None:
    """The file of the module in such a name; None where there is none."""
    try:
        found = importlib.util.find_spec(name.partition(":")[0])
    except (ImportError, ValueError):  # of a package that is not there; of what is no name
        return None
    return Path(found.origin) if found is not None and found.has_location and found.origin else None


def importable(folder: str | Path) -> None:
    """Have modules found in that folder first, as those beside a script are."""
    place = str(Path(folder).absolute())
    if place not in sys.path:
        sys.path.insert(0, place)
