"""How often Python looks for objects that refer to each other in a circle. All other objects are freed at once, without a search.

By default Python searches the youngest objects each time there are 700 more of them, and all objects when a quarter has been added. What
an open request keeps counts as added. So with 5,000 agents a third of the leader's processor time went into searches. Each took up to two
seconds, in which nothing else ran, not even the renewal of the Lease. What a closed connection leaves behind in circles is about 1 KiB.
"""

import gc

YOUNG_OBJECTS = 50_000  # more than requests have in flight: what they leave counts only if it stays
YOUNG_SEARCHES = 10  # to one of the middle generation
MIDDLE_SEARCHES = 10  # to one of all objects, if a quarter has been added since the last


def collect_rarely() -> None:
    """Searches for circles when objects pile up, and not when many are in flight. Those of the program itself are never searched."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_SEARCHES, MIDDLE_SEARCHES)
