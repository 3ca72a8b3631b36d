"""Renders templates, each in a process with bounds on its memory and its processor time, that it may die of.

Reads a JSON list of templates from standard input; prints one line for each: how it ended.
"""

import json
import os
import resource
import sys

from trio_render.errors import InvalidRequest
from trio_render.model.chat_template import ChatTemplate, TemplateInput

SECONDS = 4
MEMORY = 768 << 20
"""A prompt may have 64 MiB of characters of up to 4 bytes, and is copied a few times on its way."""

GIVEN = TemplateInput([{"role": "user", "content": "hi"}], None, None, True, False, {"one": 1})


def outcome(source: str) -> str:
    try:
        text = ChatTemplate(source, {}).render(GIVEN, lambda: None)
    except InvalidRequest as error:
        return "ran out of memory" if "MemoryError" in error.message else "refused"
    return f"rendered {len(text)}"


def apart(source: str) -> str:
    """The outcome in a process of its own, which has nothing to import any more."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        os.write(writing, outcome(source).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        found = pipe.read()
    _, status = os.waitpid(child, 0)
    return found if status == 0 else f"died of {status} {found}"


if __name__ == "__main__":
    for template in json.load(sys.stdin):
        print(apart(template), flush=True)  # noqa: T201
