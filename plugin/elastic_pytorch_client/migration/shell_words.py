"""The places of words of shell commands in a text, by quotes and substitutions alone."""

import re
from collections.abc import Iterator

ENDS_OF_WORDS = " \t\n;&|<>()"
GAP = re.compile(r"(?:[ \t]|\\\n)*")
CLOSED_BY = {'"': '"', "`": "`", "$(": ")", "${": "}"}


def words_from(text: str, place: int, limit: int) -> list[tuple[int, int]]:
    """The places of the words of a command from a place to a limit, such as its quote's end."""
    text, spans = text[:limit], list[tuple[int, int]]()
    while True:
        gap = GAP.match(text, place)
        start = gap.end() if gap else place
        place = _word_end(text, start)
        if place == start:
            return spans
        spans.append((start, place))


def _word_end(text: str, place: int) -> int:
    """The end of the word that begins at a place, which is the place if none does."""

    def goes_on(place: int) -> bool:
        return text[place] not in ENDS_OF_WORDS and not text.startswith("\\\n", place)

    while place < len(text) and goes_on(place):
        place = _piece_end(text, place)
    return place


def pieces(text: str, place: int, limit: int) -> Iterator[tuple[int, int]]:
    """The places of quoted strings and substitutions up to a limit, outside of comments."""
    text = text[:limit]
    while place < limit:
        if text[place] == "#" and (not place or text[place - 1] in ENDS_OF_WORDS):
            place = limit if (end := text.find("\n", place)) < 0 else end
            continue
        end = _piece_end(text, place)
        if end - place > 2 and text[end - 1] in "'\"`)}":
            yield place, end
        elif text[place] in "'\"`$" and end == limit:
            end = place + 1  # not closed, such as an apostrophe of a here-document
        place = end


def _piece_end(text: str, place: int) -> int:
    """The end of the quoted string, the substitution or the character at a place."""
    if text[place] == "\\":
        return min(place + 2, len(text))
    if text[place] == "'":
        end = text.find("'", place + 1)
        return len(text) if end < 0 else end + 1
    opening = next((opening for opening in CLOSED_BY if text.startswith(opening, place)), "")
    return _closing_end(text, place + len(opening), CLOSED_BY[opening]) if opening else place + 1


def _closing_end(text: str, place: int, closing: str) -> int:
    while place < len(text) and text[place] != closing:
        if closing == ")" and text[place] == "(":
            place = _closing_end(text, place + 1, ")")
        elif closing == '"' and text[place] == "'":
            place += 1
        else:
            place = _piece_end(text, place)
    return min(place + 1, len(text))
