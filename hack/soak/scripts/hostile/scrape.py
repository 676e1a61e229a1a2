"""Reads /metrics of all operators without pause, on a few connections to each."""

import http.client
import json
import os
import time
from contextlib import closing
from pathlib import Path

from tally import Tally, in_threads

CONNECTIONS = 6
PORT = 8781
ANSWER_SECONDS = 10.0
RETRY_SECONDS = 0.1
ADDRESSES = Path(os.environ["TALLY"], "operators")  # which the run keeps: operators come and go


def scrape(number: int, tally: Tally) -> None:
    while True:
        try:
            addresses = json.loads(ADDRESSES.read_text())
            with closing(
                http.client.HTTPConnection(addresses[number % len(addresses)], PORT, timeout=ANSWER_SECONDS)
            ) as connection:
                while True:
                    connection.request("GET", "/metrics")
                    answer = connection.getresponse()
                    answer.read()
                    if answer.status != http.HTTPStatus.OK:
                        break
                    tally.add()
        except (OSError, http.client.HTTPException, ValueError, ZeroDivisionError):
            pass
        time.sleep(RETRY_SECONDS)


if __name__ == "__main__":
    in_threads("scrape", CONNECTIONS, scrape)
