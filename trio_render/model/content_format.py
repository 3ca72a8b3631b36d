"""Does a chat template want message content as one text, or as a list of parts? Read from its source.

A template that loops over a message's ``content`` wants parts (vLLM calls this format ``openai``).
Source: behaviour of vLLM 0.33 with ``--chat-template-content-format auto``.
"""

from __future__ import annotations

from typing import Literal

import jinja2.nodes as nodes

__all__ = ["ContentFormat", "content_format"]

ContentFormat = Literal["string", "openai"]


def content_format(tree: nodes.Template) -> ContentFormat:
    """Return ``"openai"`` if ``tree`` loops over some message's content, else ``"string"``."""
    lists = _aliases(tree, {"messages"})
    messages = {
        loop.target.name
        for loop in tree.find_all(nodes.For)
        if isinstance(loop.target, nodes.Name) and _root(loop.iter) in lists
    }
    contents: set[str] = set()
    for assign in tree.find_all(nodes.Assign):
        if isinstance(assign.target, nodes.Name) and _is_content(assign.node, messages):
            contents.add(assign.target.name)
    for loop in tree.find_all(nodes.For):
        if _is_content(loop.iter, messages) or _root(loop.iter) in contents:
            return "openai"
    return "string"


def _aliases(tree: nodes.Template, names: set[str]) -> set[str]:
    """Return ``names`` and every name that is assigned from one of them, as ``messages[1:]`` is."""
    known = set(names)
    for assign in tree.find_all(nodes.Assign):
        if isinstance(assign.target, nodes.Name) and _root(assign.node) in known:
            known.add(assign.target.name)
    return known


def _root(node: nodes.Node | None) -> str | None:
    """Return the variable that an expression of filters, tests and slices starts from."""
    while True:
        if isinstance(node, nodes.Filter | nodes.Test):
            node = node.node
        elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
            node = node.node
        elif isinstance(node, nodes.Name):
            return node.name
        else:
            return None


def _is_content(node: nodes.Node | None, messages: set[str]) -> bool:
    while isinstance(node, nodes.Filter):
        node = node.node
    if isinstance(node, nodes.Getattr):
        key: object = node.attr
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        key = node.arg.value
    else:
        return False
    return key == "content" and _root(node.node) in messages
