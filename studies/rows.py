"""JSON with a row a case: what a study keeps of each library or case stands on one line."""

import json


def height(value):
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if children is None else 1 + max(map(height, children), default=0)


def rows(value, indent=0, sort_keys=False):
    """The text; objects and lists of at most two levels are a row."""
    if height(value) <= 2:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=sort_keys)
    margin = " " * (indent + 1)
    if isinstance(value, list):
        lines, ends = [rows(each, indent + 1, sort_keys) for each in value], "[]"
    else:
        items = sorted(value.items()) if sort_keys else value.items()
        lines, ends = [json.dumps(key, ensure_ascii=False) + ": " + rows(each, indent + 1, sort_keys) for key, each in items], "{}"
    return ends[0] + "\n" + ",\n".join(margin + line for line in lines) + "\n" + " " * indent + ends[1]
