"""Renders one template in a process with bounds on its memory and its processor time, that it may die of.

Reads the template from standard input; prints one line: how it ended.
"""

import resource
import sys
import time

SECONDS = 4
MEMORY = 768 << 20
"""A prompt may have 64 MiB of characters of up to 4 bytes, and is copied a few times on its way."""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    from trio_render.errors import InvalidRequest
    from trio_render.model.chat_template import ChatTemplate, TemplateInput

    given = TemplateInput([{"role": "user", "content": "hi"}], None, None, True, False, {"one": 1})
    source = sys.stdin.read()
    began = time.process_time()
    try:
        text = ChatTemplate(source, {}).render(given, lambda: None)
        outcome = f"rendered {len(text)}"
    except InvalidRequest as error:
        outcome = "ran out of memory" if "MemoryError" in error.message else "refused"
    print(f"{outcome} {time.process_time() - began:.3f}")  # noqa: T201


if __name__ == "__main__":
    main()
