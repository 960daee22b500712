r"""The rules of the contract for any service with the two endpoints, in any language.

A function that sends a request is passed in: your client, or your app without a server. This package has no web stack.

>>> def send(request):
...     if request.target == "/trading-view/pair-list":
...         return Response(200, {"Content-Type": "application/json"}, b'{"pairs": []}')
...     return Response(404, {}, b'{"error": "not found"}')
>>> for result in check(send).failed():
...     print(result.rule.source, "|", result.rule.text)
...     print(result.faults[0].came)
contract 7 | the message of a 404 names the pair
'not found'
"""

from market_index.contract.messages import LimitReached, NoResponse, Request, Response
from market_index.contract.probes import check
from market_index.contract.report import Fault, Outcome, Report, Result, Rule

__all__ = ["Fault", "LimitReached", "NoResponse", "Outcome", "Report", "Request", "Response", "Result", "Rule", "check"]
