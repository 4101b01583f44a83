"""Groups through the model of Atropos' own server."""

from __future__ import annotations

import json
import sys

from atroposlib.api.server import ScoredData, _scored_data_to_dict


def main() -> None:
    said = [_scored_data_to_dict(ScoredData(**fields)) for fields in json.load(sys.stdin)]
    print(json.dumps(said))


main()
