"""Words that the project's English does without, and what to write instead. Pure."""

import re
from collections.abc import Iterator

# A pattern, which matches whole words in any case, and what to write instead of it.
INSTEAD = {
    r"nobody|somebody|anybody|everybody": "name who it is: a user, an agent, each worker, no process",
    r"whoever|whomever": "anyone who, or the name of the role",
    r"anew|afresh": "again",
    r"once more": "again",
    r"so many": "the number, or `that many`",
    r"for ever|forevermore": "indefinitely, or `never ends`",
    r"for good": "permanently",
    r"and the like|and its like": "and similar ..., or the whole list",
    r"(?:look|looks|looked|looking) after": "reconcile, or manage",
    r"(?:tell|tells|telling|told) of": "report",
    r"(?:keep|keeps|kept|keeping) (?:its|their|your) hands off|hands off": "ignore, or `do not reconcile`",
    r"(?:go|goes|going|went) by": "use, or `be based on`",
    r"(?:see|sees|seeing|saw) to": "handle",
    r"(?:stand|stands|standing|stood) by": "be on standby",
    r"(?:know|knows|knowing|knew) (?:of )?no": "do not support, or `has no`",
    r"taken for": "considered, or treated as",
    r"(?:mend|mends|mended|mending)": "fix, or repair",
    r"(?:heed|heeds|heeded|heeding)": "follow, or respect",
    r"(?:vouch|vouches|vouched|vouching)": "sign, or verify",
    r"(?:steer|steers|steered|steering)": "control",
    r"amid|amidst|in the midst(?: of)?": "during",
    r"in (?:the )?place of": "instead of",
    r"ever more": "more and more, or the numbers",
    r"merely": "only",
    r"mere": "only a",
    r"seldom": "rarely",
    r"upon": "on",
    r"whilst": "while",
    r"lest": "so that ... not",
    r"without a (?:goodbye|word)": "without notice, or `without closing its connections`",
    r"has its say|have their say": "name what it decides",
    r"it is (?:no|none) of": "say what is the case",
}
# A line may end between two words of a pattern.
WORDS = [
    (re.compile(rf"\b(?:{pattern})\b".replace(" ", r"\s+"), re.IGNORECASE), instead) for pattern, instead in INSTEAD.items()
]

# A code span counts as one word; what follows a colon is often a list, and is counted by itself.
SENTENCE_END = re.compile(r"(?<=[.!?:])[\"')*\]]*\s+")


def objections(text: str, max_words: int) -> Iterator[tuple[int, str]]:
    """What is wrong in a piece of prose without markup: the offset, and what to do about it; sentences have at most `max_words`."""
    for pattern, instead in WORDS:
        for found in pattern.finditer(text):
            yield found.start(), f"`{' '.join(found[0].split())}`: write {instead}"
    start = 0
    for sentence in SENTENCE_END.split(text):
        start = text.index(sentence, start)
        if (count := sum(any(map(str.isalnum, word)) for word in sentence.split())) > max_words:
            yield start, f"a sentence of {count} words, at most {max_words}: `{' '.join(sentence.split()[:6])} ...`"
