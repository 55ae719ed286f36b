"""What is of the user's own making, by the name that it has in a module: "package.module:name"."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
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
            f"{place}, and there is no module {error.name}: run this in its folder, or name that in PYTHONPATH"
        ) from error
    except Exception as error:  # of the user's own code
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = "" if isinstance(error, SyntaxError) else f" ({Path(last.filename).name}, line {last.lineno})"
        told = f"{type(error).__name__}: {reason(error)}{where}"
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
