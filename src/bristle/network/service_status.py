"""What can be told about a running peer."""

from __future__ import annotations

from bristle.network.overlay import Overlay
from bristle.network.service_data import Knowledge
from bristle.network.service_traffic import Traffic
from bristle.peer.status import Neighbour, Status


def status_of(overlay: Overlay, knowledge: Knowledge, traffic: Traffic, *, waiting: str | None) -> Status:
    """Gather the status of a peer that runs."""
    return Status(
        running=True,
        key_id=knowledge.identity,
        application=knowledge.grouping.application,
        iteration=knowledge.iteration,
        samples=knowledge.class_counts(),
        counters=traffic.totals(),
        bytes_last_day=traffic.budget.last_day,
        last=knowledge.last,
        decided=knowledge.decided,
        accuracy=knowledge.accuracy,
        address="{}:{}".format(*overlay.address),
        neighbours=tuple(
            Neighbour(
                key_id=one.key_id.hex(),
                address="{}:{}".format(*one.address),
                silent=round(one.last_heard, 1),
            )
            for one in overlay.neighbours()
        ),
        waiting=waiting,
    )
