"""Names of variables, headers, parameters and fields whose values are secret."""

import re

from .lazy_pattern import LazyPattern  # the host imports this by another name of the package

__all__ = ["HINTS", "is_credential_name"]

# No secret: a compass, passengers, tokenizers, how many tokens a model took, the shell's PWD and OLDPWD.
_NAMES = LazyPattern(
    r"passw|pass(wd|phrase|code)|(?<!com)(?<!by)(?<!tres)(?<!sur)(?<!over)(?<!under)pass$|"
    r"(^|[^a-z])pass(?![a-z])(?![-_. ]?(rate|count|through|fail|time|num))|"
    r"(?<!^)(?<!old)pwd?$|^pw$|(^|[^a-z])pw[^a-z]|"
    r"secret|(?<!max[-_])(?<!prompt[-_])(?<!completion[-_])(?<!total[-_])(?<!input[-_])(?<!output[-_])"
    r"token(?!iz|s?[-_]?(type|count|limit|usage|ur[il]|endpoint|expir|ttl))|"
    r"api[-_]?key|access[-_]?key|private[-_]?key|credential|authorization|^cookie$|^set-cookie$|x-amz-security|"
    r"session[-_]?(id|key)|signature|\bdsn\b|encryption[-_]?key|csrf|xsrf|jwt|cvv",
    re.IGNORECASE,
)
# Nothing has a name as above without one of these in it: searching for them is far cheaper.
HINTS = (
    *("pass", "pw", "secret", "token", "key", "credential", "auth", "cookie", "session", "signature", "dsn"),
    *("csrf", "xsrf", "jwt", "cvv"),
)


def is_credential_name(name: str) -> bool:
    """An environment variable, header or parameter of this name holds a secret."""
    low = name.lower()
    return any(hint in low for hint in HINTS) and _NAMES.search(name) is not None
