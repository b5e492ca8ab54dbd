"""Graph caches on a trace in plain Python: the oracle of the compiled loop."""

from __future__ import annotations

from collections import OrderedDict

from verifylab.caches import CacheCounts, CacheRule

__all__ = ["play"]


def play(keys: list[int], nodes: list[int], rule: CacheRule, skip: int) -> dict[str, int]:
    """Count what one cache does on a trace; parameters as in `verifylab.caches.simulate`."""
    graphs, most_nodes, safe_graphs, safe_nodes = rule.limits
    uses_at: dict[int, list[int]] = {}
    for t, key in enumerate(keys):
        uses_at.setdefault(key, []).append(t)
    for times in uses_at.values():
        times.reverse()  # the next use is at the end
    seen: dict[int, int] = {}
    held: OrderedDict[int, int] = OrderedDict()  # uses by key, from the longest unused to the last
    last: dict[int, int] = {}
    probation: OrderedDict[int, None] = OrderedDict()
    protected: OrderedDict[int, None] = OrderedDict()
    c = dict.fromkeys(CacheCounts.__dataclass_fields__, 0)

    def coming(key: int) -> int:
        return uses_at[key][-1] if uses_at[key] else len(keys) + key

    def size() -> int:
        return sum(nodes[key] for key in held)

    def full(key: int) -> bool:
        return bool(held) and (len(held) >= graphs or size() + nodes[key] > most_nodes)

    def victim() -> int:
        if rule.offline:
            return max(held, key=coming)
        if rule.eviction == "lfu":
            return min(held, key=lambda key: (held[key], last[key]))
        if rule.eviction == "slru":
            return next(iter(probation or protected))
        return next(iter(held))

    def evict(key: int) -> None:
        del held[key]
        probation.pop(key, None)
        protected.pop(key, None)
        c["evictions"] += 1
        c["nodes_evicted"] += nodes[key]

    def restart() -> None:
        c.update(dict.fromkeys(c, 0), peak_graphs=len(held), peak_nodes=size())

    for t, key in enumerate(keys):
        if t == skip:
            restart()
        uses_at[key].pop()
        seen[key] = seen.get(key, 0) + 1
        while rule.idle_steps and held and t - last[next(iter(held))] > rule.idle_steps:
            evict(next(iter(held)))
        eager = key not in held and seen[key] < rule.admit_on
        if rule.eviction == "min_bypass" and key not in held:
            eager = coming(key) >= len(keys)
            eager = eager or (full(key) and coming(victim()) < coming(key))
        elif rule.eviction == "none" and key not in held:
            eager = eager or full(key)
        if eager:
            c["eager"] += 1
            c["nodes_eager"] += nodes[key]
        elif key in held:
            c["hits"] += 1
            held[key] += 1
            held.move_to_end(key)
            probation.pop(key, None)
            protected.pop(key, None)
            protected[key] = None
            while len(protected) > safe_graphs or sum(nodes[k] for k in protected) > safe_nodes:
                probation[protected.popitem(last=False)[0]] = None
        else:
            while full(key):
                evict(victim())
            c["captures"] += 1
            c["nodes_captured"] += nodes[key]
            held[key] = 1
            probation[key] = None
            c["peak_graphs"] = max(c["peak_graphs"], len(held))
            c["peak_nodes"] = max(c["peak_nodes"], size())
        if not eager:
            c["nodes_launched"] += nodes[key]
            last[key] = t
        c["node_steps"] += size()
    if skip == len(keys):
        restart()
    return c
