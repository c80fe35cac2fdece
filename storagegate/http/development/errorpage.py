"""What a browser is shown in development in place of an answer."""

from collections.abc import Mapping
from html import escape
from typing import Any

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title></head>
<body>
<h1>{title}</h1>
<p>{detail}</p>
<pre>{trace}</pre>
</body>
</html>
"""


def errorPage(status: int, shape: Mapping[str, Any]) -> str:
    """
    Write a page about an error.

    @param shape: The answer that others would get as JSON.
    """
    request = f"{shape['method']} {shape['path']}" if "path" in shape else ""
    return _PAGE.format(
        title=escape(f"{status} {shape['error']}"),
        detail=escape(request),
        trace=escape("".join(shape.get("traceback", ()))),
    )
