"""Test files that exit 0 when their tests fail: GPU files are run by Python, and these drop pytest.main's code."""

import ast

from ci.registration import Finding


def lost_exit_codes(source: bytes, file: str) -> list[Finding]:
    """Calls of ``pytest.main`` that stand as statements of their own; a file that Python cannot read has none."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "pytest"
        for alias in node.names
        if alias.name == "main"
    }
    text = (
        "pytest.main's exit code is dropped, so the file passes when its tests fail; write sys.exit(pytest.main(...))"
    )
    return [
        Finding(file, node.lineno, text)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _is_pytest_main(node.value.func, names)
    ]


def _is_pytest_main(called: ast.expr, names: set[str]) -> bool:
    match called:
        case ast.Attribute(value=ast.Name(id="pytest"), attr="main"):
            return True
        case ast.Name(id=name):
            return name in names
        case _:
            return False
