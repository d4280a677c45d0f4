"""A function in the place of one of another module, which a stack shows as that module's."""

import functools
from typing import Any

__all__ = ["stand_in"]


def stand_in(own: Any, before: Any, module: Any) -> Any:
    """``own`` as ``before`` of ``module`` was: by its name, and by the file that its frames are of.

    Handlers find who logged by going up from frames of logging's file, as those do that hand records over to loguru.
    """
    own.__code__ = own.__code__.replace(co_filename=module.__file__)
    return functools.wraps(before)(own)
