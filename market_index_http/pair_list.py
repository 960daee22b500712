"""`GET /trading-view/pair-list`: every tracked pair with its last known spot price."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from starlette.types import Scope

from market_index_http.bodies import Response
from market_index_http.queries import require_small
from market_index_http.snapshots import Snapshot


@final
class PairListEndpoint:
    """The endpoint of the pair list. Unknown query parameters are ignored (decision 17)."""

    path: Final = "/trading-view/pair-list"

    def __init__(self, current: Callable[[], Snapshot]) -> None:
        self._current = current

    def __call__(self, scope: Scope) -> Response:
        """Return the response to a request.

        Raises:
            HTTPException: 400 if the request is excessive.
        """
        require_small(scope)
        snapshot = self._current()
        return snapshot.pair_list().response(scope, snapshot.fields)
