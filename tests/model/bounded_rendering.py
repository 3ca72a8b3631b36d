"""Renders one template in a process with a bound on its memory. Run apart: it may have to die.

Reads the template from standard input; prints one line: how it ended. The process must be killed if it
doesn't end.
"""

import resource
import sys
import time

MEMORY = 768 << 20
"""A prompt may have 64 MiB of characters of up to 4 bytes, and is copied a few times on its way."""


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
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
