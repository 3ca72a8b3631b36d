"""Renders chats with transformers' own environment. Run apart: the package is slow to import and warns.

Reads a JSON list of chats from standard input; writes a list of texts, null where rendering failed.
"""

import json
import os
import sys
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
# Marks torch as not installed: transformers would import it, for seconds and to no use.
sys.modules["torch"] = None  # type: ignore[assignment]

from transformers.utils.chat_template_utils import render_jinja_template  # noqa: E402


def rendered(chat: dict[str, Any]) -> str | None:
    try:
        texts, _ = render_jinja_template(
            conversations=[chat["messages"]],
            tools=chat["tools"],
            documents=chat["documents"],
            chat_template=chat["template"],
            add_generation_prompt=chat["add_generation_prompt"],
            continue_final_message=chat["continue_final_message"],
            **{**chat["variables"], **chat["special_tokens"]},
        )
    except Exception:
        return None
    text: str = texts[0]
    return text


if __name__ == "__main__":
    json.dump([rendered(chat) for chat in json.load(sys.stdin)], sys.stdout)
