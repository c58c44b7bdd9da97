"""State of a subscription as one cluster knows it. It has what all regions share, and what is this region's alone, with the switch between the two
(Pulsar's `replicateSubscriptionState`). Merging is a join, as of each of the two.

A subscription is *replicated*, or *regional*: of one region only. Which of the two it is, is each region's own matter, as in Pulsar it is a
property of the cluster's own cursor. What is regional stays at home, so two regions that decide otherwise at once do not meet. `Regional.turn`
counts how often a region has decided; of two decisions the later replaces the earlier whole.

Pure: no Spark, clock, random or I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from geo.subscription.acks.ack_state import AckState, Base, Epoch, merged


@dataclass(frozen=True, slots=True)
class Regional:
    """State that is one region's alone. `on`: this is the subscription there; else the replicated one is."""

    turn: int
    on: bool
    state: AckState = field(default_factory=AckState)


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """None: there is no record of it. What one record tells, what several do together, and what is kept of all."""

    replicated: AckState | None = None
    regional: Regional | None = None

    def __or__(self, other: SubscriptionState) -> SubscriptionState:
        """Merges both."""
        return merged_all((self, other))

    @property
    def states(self) -> list[AckState]:
        """All that it holds."""
        return [one for one in (self.replicated, None if self.regional is None else self.regional.state) if one is not None]

    @property
    def is_regional(self) -> bool:
        return self.regional is not None and self.regional.on

    @property
    def turn(self) -> int:
        """Count of this region's decisions; 0: none, so that it is replicated."""
        return 0 if self.regional is None else self.regional.turn

    @property
    def here(self) -> AckState | None:
        """The subscription as it is in this region; None: there is no record of it."""
        return self.regional.state if self.regional is not None and self.regional.on else self.replicated

    def part(self, state: AckState) -> SubscriptionState:
        """Part that is told of the subscription as it is in this region, and of nothing else."""
        if self.regional is not None and self.regional.on:
            return SubscriptionState(regional=replace(self.regional, state=state))
        return SubscriptionState(state)

    def with_here(self, state: AckState) -> SubscriptionState:
        """With another state of the one that it is in this region."""
        told = self.part(state)
        return replace(self, regional=told.regional) if self.is_regional else replace(self, replicated=told.replicated)

    def is_older_than(self, other: SubscriptionState) -> bool:
        """Tells whether a record with this changes nothing beside the other, since it is of an earlier epoch or turn."""
        ranks = [one.replicated.rank for one in (self, other) if one.replicated is not None]
        if len(ranks) == 2 and ranks[0] < ranks[1]:
            return True
        mine, theirs = self.regional, other.regional
        return mine is not None and theirs is not None and (mine.turn, mine.state.rank) < (theirs.turn, theirs.state.rank)

    # -- what is decided, each a record ----------------------------------------------------------------------------------

    def begun(self, cluster: str, base: Base, *, replicated: bool) -> SubscriptionState:
        """The record by which it begins at `base` in this region, where it is not known or was deleted. A replicated one begins in nobody's epoch,
        so that regions that create it at once agree, and that counts only what they share. A later one than another region's would replace what is
        acknowledged there. One that lives elsewhere is joined. A regional one begins in its region's own."""
        if replicated:
            shared = self.replicated or AckState()
            epoch = Epoch(shared.epoch.counter + 1) if shared.deleted else shared.epoch
            return SubscriptionState(AckState(epoch, base), None if not self.is_regional else Regional(self.turn + 1, False))
        turn = self.turn if self.is_regional else self.turn + 1
        return SubscriptionState(regional=Regional(turn, True, AckState(self._next(cluster), base)))

    def made_regional(self) -> SubscriptionState:
        """The record by which a replicated one is this region's own from here on, as it is. The others keep what they were told."""
        assert not self.is_regional, "only a replicated one becomes regional"
        return SubscriptionState(regional=Regional(self.turn + 1, True, self.replicated or AckState()))

    def made_replicated(self, cluster: str) -> SubscriptionState:
        """The record by which a regional one is everybody's from here on, exactly as it is in this region.

        It replaces what the others know under this name, so it needs an epoch that is this region's own and later than theirs. United with theirs,
        what they have acknowledged and nobody here has seen would be skipped here. A regional one that was deleted gives the name back to the
        replicated one.
        """
        assert self.regional is not None, "only a regional one becomes replicated"
        off, state = Regional(self.turn + 1, False), self.regional.state
        if state.deleted:
            return SubscriptionState(regional=off)
        is_later = self.replicated is None or self.replicated.epoch.counter < state.epoch.counter
        if is_later and state.epoch.cluster == cluster:
            return SubscriptionState(state, off)
        return SubscriptionState(replace(state, epoch=self._next(cluster)), off)

    def _next(self, cluster: str) -> Epoch:
        """An epoch later than any that is known here."""
        return Epoch(max((one.epoch.counter for one in self.states), default=0) + 1, cluster)


def merged_all(states: Iterable[SubscriptionState]) -> SubscriptionState:
    """Merges all of them; the result is the same whatever their order, and if one is among them twice. A later turn replaces an earlier one. Of one
    turn, which is one decision, records tell parts.
    """
    found = list(states)
    shared = [one.replicated for one in found if one.replicated is not None]
    regional = [one.regional for one in found if one.regional is not None]
    last = max((one.turn for one in regional), default=0)
    of_last = [one for one in regional if one.turn == last]
    return SubscriptionState(
        merged(shared) if shared else None,
        Regional(last, any(one.on for one in of_last), merged(one.state for one in of_last)) if of_last else None,
    )
