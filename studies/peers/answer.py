"""What a tool answers about one run: found (perhaps with a step and its own words), silent, or that it cannot be asked."""

import pathlib


def found(step=None, words="", code=""):
    return {"found": True, "step": step, "words": str(words), **({"code": code} if code else {})}


def silent(words=""):
    return {"found": False, "words": str(words)}


def cannot(why):
    return {"cannot": why}


def shortened(words):
    """One line without the machine's folders."""
    words = " ".join(str(words).split())
    for place in {str(pathlib.Path.home()), str(pathlib.Path(__file__).resolve().parents[2])}:
        if len(place) > 1:
            words = words.replace(place, "…")
    return words[:300]
