"""How a run's kernel writes its messages: a text that is not Unicode costs itself alone.

Jupyter's own way drops the whole message, and with it what a cell's error said.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["pack"]


def pack(message: Any) -> bytes:
    """Return a message as JSON, with ``?`` in place of what UTF-8 does not have."""
    from jupyter_client.session import json_packer

    try:
        return json_packer(message)
    except UnicodeEncodeError:
        text = json.dumps(message, default=str, ensure_ascii=False, allow_nan=False)
        return text.encode("utf-8", "replace")
