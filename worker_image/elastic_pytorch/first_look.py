"""Is anybody training already? Asked while torch is being imported.

Workers of a first group are waited for: they should be ready soon, and may import the rest later. One that joins a group which trains
is not waited for until it is ready, but then everybody waits for its first step: it should have imported all that this takes.
"""

import threading

from elastic_pytorch.http_connection import OperatorConnection
from elastic_pytorch.settings import Settings

ANSWER_SECONDS = 2.0


class FirstLook:
    """Looks in a thread of its own.

    Args:
        settings: the operator's.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._round: object = None
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def group_trains(self) -> bool:
        """Whether there has been a round; True as well if the operator has not said so in time."""
        self._thread.join(ANSWER_SECONDS)
        return self._round != 0

    def _look(self) -> None:
        settings = self._settings
        connection = OperatorConnection(
            settings.operator_host,
            settings.operator_port,
            settings.token_file,
            ANSWER_SECONDS,
            authorities=settings.operator_authorities,
        )
        try:
            answer = connection.request("GET", "/v1/round?after=0&nudge=0&hold=0")
            self._round = answer["round"]
        except Exception:  # whatever it is, the talk that follows will tell
            self._round = None
        finally:
            connection.close()
