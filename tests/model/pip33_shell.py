"""The commands of the scenarios in tests/scenarios/pip33, and what each prints.

clusters a b c                  the clusters there are
links a<->b h->a:h,b            the links between them; behind a colon the origins that cross
publish a 2 to b                messages, to all or to some
subscribe a s                   a consumer of versions begins in a, where it may
ack a s 7                       it finishes all up to a version, or what there is
tick a +10                      time passes; the cluster, or each, gets a tick
deliver a->b 1                  a turn of a link, of so many versions at most; without a name, of each; then the target reads what came
settle                          turns of all until nothing comes any more
drop a->b, duplicate a->b       a turn that fails; one that is tried again after it was committed
delay a->b 5                    the link sees only what is so old
partition a b, heal a b         the links between two
crash a                         the controller of a is lost, and built anew from the journal
reconcile, reset, backfill a->b
expect a, expect a s            what the controller knows
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.pip33 import World, name_of, pending, places


class Shell:
    def __init__(self) -> None:
        self._clusters: list[str] = []
        self._world: World | None = None
        self._shown = 0

    @property
    def world(self) -> World:
        assert self._world is not None, "links come first"
        return self._world

    def run(self, command: str) -> list[str]:
        """What it prints: what happened, then what it says itself."""
        verb, *words = command.split()
        said = list(getattr(self, f"do_{verb}")(*words))
        if self._world is None:
            return said
        self.world.check()
        happened = self.world.events[self._shown :]
        self._shown = len(self.world.events)
        return happened + said

    def do_clusters(self, *names: str) -> list[str]:
        self._clusters = list(names)
        return []

    def do_links(self, *texts: str) -> list[str]:
        links: dict[str, list[str]] = {}
        for text in texts:
            name, _, origins = text.partition(":")
            if "<->" in name:
                one, _, other = name.partition("<->")
                links |= {f"{one}->{other}": [], f"{other}->{one}": []}
            else:
                links[name] = origins.split(",") if origins else []
        self._world = World(links)
        assert sorted(self._world.clusters) == sorted(self._clusters), "links join the clusters"
        return []

    def do_publish(self, name: str, count: str = "1", *to: str) -> list[str]:
        self.world.publish(name, int(count), to[1:] or None)
        return []

    def do_subscribe(self, name: str, subscription: str) -> Iterator[str]:
        self.world.subscribe(name, subscription)
        self.world.run(name)
        yield f"{subscription} in {name} begins at version {self.world.clusters[name].readers[subscription]}"

    def do_ack(self, name: str, subscription: str, version: str = "") -> Iterator[str]:
        first = self.world.clusters[name].readers[subscription]
        again = self.world.read(name, subscription, int(version) - first + 1 if version else 1_000_000)
        last = self.world.clusters[name].readers[subscription] - 1
        self.world.run(name)
        repeated = f", again {' '.join(f'{origin}{number}' for origin, number in sorted(again))}" if again else ""
        yield f"{subscription} in {name} has finished version {last}{repeated}"

    def do_tick(self, *words: str) -> list[str]:
        names = [word for word in words if not word.startswith("+")] or list(self.world.clusters)
        self.world.now += sum(float(word) for word in words if word.startswith("+"))
        for name in names:
            self.world.tick(name)
            self.world.run(name)
        return []

    def do_deliver(self, link: str = "", most: str = "1000000") -> list[str]:
        for name in [link] if link else list(self.world.links):
            self.world.deliver(name, int(most))
            self.world.run(self.world.links[name].target)
        return []

    def do_settle(self) -> list[str]:
        before = -1
        while before != len(self.world.events):
            before = len(self.world.events)
            self.do_deliver()
        return []

    def do_drop(self, link: str) -> list[str]:
        """Says it, and is nothing: a batch that is not appended leaves the cursor where it is."""
        return [f"{link}: nothing came"]

    def do_duplicate(self, link: str) -> list[str]:
        """The link tries again what it has brought: the cursor that its rows carried leaves nothing of it."""
        self.world.deliver(link, attempts=2)
        self.world.run(self.world.links[link].target)
        return []

    def do_delay(self, link: str, seconds: str) -> list[str]:
        self.world.links[link].delay = float(seconds)
        return []

    def do_partition(self, one: str, other: str, *, up: bool = False) -> list[str]:
        for link in self.world.links.values():
            if {link.source, link.target} == {one, other}:
                link.up = up
        return []

    def do_heal(self, one: str, other: str) -> list[str]:
        return self.do_partition(one, other, up=True)

    def do_crash(self, name: str) -> Iterator[str]:
        self.world.crash(name)
        yield f"{name}: built anew from {self.world.clusters[name].heard} rows"

    def do_reconcile(self, link: str) -> list[str]:
        for _ in self.world.reconcile(link):
            pass
        self.world.run(self.world.links[link].target)
        return []

    def do_backfill(self, link: str) -> list[str]:
        for _ in self.world.backfill(link):
            pass
        self.world.run(self.world.links[link].target)
        return []

    def do_reset(self, link: str) -> list[str]:
        self.world.reset_to_latest(link)
        self.world.run(self.world.links[link].target)
        return []

    def do_expect(self, name: str, subscription: str = "") -> Iterator[str]:
        controller = self.world.clusters[name].controller
        if not subscription:
            waits = ", ".join(f"{one} ({why})" for one, why in sorted(controller.waits_for.items())) or "nobody"
            yield f"{name}: at version {self.world.clusters[name].newest}, waits for {waits}"
            yield f"  pending: {', '.join(map(name_of, pending(controller))) or 'none'}"
            for why, count in sorted(controller.counts.items()):
                yield f"  {why}: {count}"
        elif subscription not in controller.subscriptions:
            yield f"{subscription} is unknown in {name}"
        else:
            finished, start = controller.finished(subscription), controller.start(subscription)
            yield f"{subscription} in {name}: finished {finished}, may begin at {start}"
            for one in controller.snapshots(subscription):
                yield f"  {name_of(one.snapshot_id)}: here {one.local_position}, {places(one.clusters)}"
