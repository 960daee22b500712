"""A plugin of pytest that renames the private names of uvicorn's protocol, before anything imports it.

It renames attributes of the classes of `httptools_impl`, except methods that asyncio, httptools and a server call.
"""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from uvicorn.protocols.http import httptools_impl

CALLED_FROM_OUTSIDE = {
    *("__init__", "connection_made", "connection_lost", "data_received", "eof_received", "pause_writing"),
    *("resume_writing", "on_message_begin", "on_url", "on_header", "on_headers_complete", "on_body"),
    *("on_message_complete", "shutdown"),
}
OWNERS = {"self", "cycle", "existing_cycle", "self.renamed_cycle"}
"""The expressions that are objects of these classes."""


class Renaming(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if node.args.args and node.args.args[0].arg == "self" and node.name not in CALLED_FROM_OUTSIDE:
            node.name = f"renamed_{node.name}"
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        self.generic_visit(node)
        node.name = f"renamed_{node.name}"
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.value) in OWNERS and node.attr not in CALLED_FROM_OUTSIDE:
            node.attr = f"renamed_{node.attr}"
        return node


def pytest_report_header() -> str:
    return "uvicorn has other names"


tree = ast.fix_missing_locations(Renaming().visit(ast.parse(inspect.getsource(httptools_impl))))
exec(compile(tree, str(Path(__file__)), "exec"), vars(httptools_impl))
