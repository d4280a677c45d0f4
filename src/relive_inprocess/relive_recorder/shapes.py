"""Secrets that show what they are by their look, wherever they stand: tokens of well-known services, JSON Web Tokens, private keys.

Forms as their issuers document them (GitHub, GitLab, Slack, Stripe, AWS, Google, npm, PyPI, SendGrid, Anthropic, OpenAI,
Hugging Face, DigitalOcean, Shopify, HashiCorp Vault, age), RFC 7519 for JWT, RFC 7468 for PEM.
"""

import re
from typing import Any, List

__all__ = ["BEGINNINGS", "found_in"]

BEGINNINGS = (
    *("eyJ", "-----BEGIN ", "AKIA", "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
    *(
        "xoxa-",
        "xoxb-",
        "xoxe-",
        "xoxo-",
        "xoxp-",
        "xoxr-",
        "xoxs-",
        "xapp-",
        "sk_live_",
        "sk_test_",
        "rk_live_",
        "rk_test_",
    ),
    *(
        "whsec_",
        "AIza",
        "ya29.",
        "npm_",
        "pypi-AgE",
        "SG.",
        "sk-ant-",
        "sk-proj-",
        "T3BlbkFJ",
        "hf_",
        "dop_v1_",
    ),
    *("shpat_", "shpss_", "hvs.", "AGE-SECRET-KEY-1", "rlv_"),
)
"""No text without one of these holds any: what is searched for first, since it is far cheaper."""
_PARTS = (
    r"eyJ[\w-]{10,}\.eyJ[\w-]{4,}\.[\w-]*",
    r"eyJ[\w-]{10,}\.[\w-]*\.[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}",
    # Also as it stands in JSON, and one whose end is missing.
    r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----(?:[A-Za-z0-9+/=\s:,.-]|\\+[nr])*?"
    r"(?:-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----|(?![A-Za-z0-9+/=\s:,.\\-])|\Z)",
    r"(?<![A-Za-z0-9])A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9])",
    r"(?<![A-Za-z0-9])gh[opusr]_[A-Za-z0-9]{36,}",
    r"github_pat_\w{22,}",
    r"glpat-[\w-]{20,}",
    r"xox[abeoprs]-[\w-]{10,}|xapp-\d-[\w-]{10,}",
    r"(?<![A-Za-z0-9])[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/=]{24,}",
    r"AIza[\w-]{35}|ya29\.[\w-]{20,}",
    r"(?<![A-Za-z0-9])npm_[A-Za-z0-9]{36}|pypi-AgE[\w-]{50,}",
    r"(?<![A-Za-z0-9])SG\.[\w-]{16,}\.[\w-]{16,}",
    r"(?<![A-Za-z0-9])sk-(?:ant|proj)-[\w-]{20,}|sk-[\w-]*T3BlbkFJ[\w-]+",
    r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}|dop_v1_[0-9a-f]{64}|shp(?:at|ss)_[0-9a-f]{32}",
    r"(?<![A-Za-z0-9])hvs\.[\w-]{24,}|AGE-SECRET-KEY-1[A-Z0-9]{50,}",
    r"(?<![A-Za-z0-9])rlv_[\w-]{20,}",
)
_compiled: Any = None


def found_in(text: str) -> List[str]:
    """Those that stand in a text, in their order."""
    global _compiled
    for beginning in BEGINNINGS:
        if beginning in text:
            break
    else:
        return []
    if _compiled is None:  # not at the start of each process: it takes milliseconds
        _compiled = re.compile("|".join(_PARTS))
    return [found[0] for found in _compiled.finditer(text)]
