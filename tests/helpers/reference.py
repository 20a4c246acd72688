"""Every rule once more, naively: plain Python floats, whole buffers kept, nothing shared with the package."""

from math import sqrt
from typing import Any

Vec = list[float]


def mean(vectors: list[Vec], weights: list[float]) -> Vec:
    total = sum(weights)
    return [sum(w * v[i] for v, w in zip(vectors, weights, strict=True)) / total for i in range(len(vectors[0]))]


def minus(a: Vec, b: Vec) -> Vec:
    return [x - y for x, y in zip(a, b, strict=True)]


def dot(a: Vec, b: Vec) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def s(spec: Any, tau: int) -> float:
    kind = spec if isinstance(spec, str) else spec["kind"]
    if kind == "constant":
        return 1.0
    if kind == "polynomial":
        return (1 + tau) ** -(0.5 if isinstance(spec, str) else spec["a"])
    a, b = (10.0, 4.0) if isinstance(spec, str) else (spec["a"], spec["b"])
    return 1.0 if tau <= b else 1 / (a * (tau - b) + 1)


DEFAULTS: dict[str, dict[str, Any]] = {
    "fedavg": {"weighting": "examples"},
    "fedprox": {"weighting": "examples"},
    "fednova": {"weighting": "examples", "server_lr": 1.0},
    "fedasync": {"beta": 0.6, "staleness": "polynomial"},
    "fedbuff": {"buffer": 5, "server_lr": 1.0, "staleness": "polynomial", "origin": "base", "weighting": "uniform"},
    "port": {"buffer": 5, "staleness_bound": 10, "similarity_weight": 1.0, "staleness_weight": 1.0},
    "fedfa-param": {"window": 5, "weighting": "uniform", "one_slot_per_client": False},
    "fedfa-delta": {
        "window": 5,
        "weighting": "uniform",
        "origin": "base",
        "staleness": "constant",
    },
    "fedfa-agree": {"window": 5, "weighting": "uniform", "one_slot_per_client": False},
}
for variant, original in {
    "port-non-urgent": "port",
    "port-urgent": "port",
    "fedfa-prox": "fedfa-delta",
    "fedfa-nova": "fedfa-delta",
}.items():
    DEFAULTS[variant] = DEFAULTS[original]


def reference_replay(
    strategy: str, parameters: dict[str, Any], initial: Vec, arrivals: list[dict[str, Any]], n: int
) -> list[Vec]:
    """The global model right after each arrival; the first n entries are parameters."""
    p = {"concurrency": 10, "max_staleness": None, "clip_norm": None} | DEFAULTS[strategy] | parameters
    versions = [list(initial)]
    buffer: list[dict[str, Any]] = []
    out: list[Vec] = []
    for arrival in arrivals:
        w, t = versions[-1], len(versions) - 1
        tau = t - arrival["base_version"]
        bad = len(arrival["params"]) != len(initial) or not 0 <= arrival["base_version"] <= t
        if bad or (p["max_staleness"] is not None and tau > p["max_staleness"]):
            out.append(w)
            continue
        base, params = versions[arrival["base_version"]], list(arrival["params"])
        difference = minus(params[:n], base[:n])
        norm = sqrt(dot(difference, difference))
        if p["clip_norm"] is not None and norm > p["clip_norm"]:
            params[:n] = [b + d * p["clip_norm"] / norm for b, d in zip(base[:n], difference, strict=True)]
        origin = w if p.get("origin") == "current" else base
        item = {
            "client": arrival["client"],
            "w": params,
            "base": base,
            "D": minus(params[:n], origin[:n]),
            "n": arrival["num_examples"] if p.get("weighting", "examples") == "examples" else 1,
            "a": arrival["num_steps"],
            "tau": tau,
            "drift": minus(w[:n], base[:n]),
        }
        new = rule(strategy, p, w, buffer, item, n)
        if new is not None:
            versions.append(new)
        out.append(versions[-1])
    return out


def rule(strategy: str, p: dict[str, Any], w: Vec, buffer: list[dict[str, Any]], item: dict[str, Any], n: int) -> Any:
    if strategy == "fedasync":
        b = p["beta"] * s(p["staleness"], item["tau"])
        return [(1 - b) * x + b * y for x, y in zip(w, item["w"], strict=True)]
    if strategy.startswith("fedfa"):
        return fedfa(strategy, p, w, buffer, item, n)
    buffer.append(item)
    if len(buffer) < p["buffer" if "buffer" in p else "concurrency"]:
        return None
    items = list(buffer)
    buffer.clear()
    weights = [i["n"] for i in items]
    if strategy in ("fedavg", "fedprox"):
        return mean([i["w"] for i in items], weights)
    if strategy == "fednova":
        steps = mean([[i["a"]] for i in items], weights)[0]
        change = mean([[d / i["a"] for d in i["D"]] for i in items], weights)
        return step(w, change, p["server_lr"] * steps, items, weights, n)
    if strategy == "fedbuff":
        change = mean([[s(p["staleness"], i["tau"]) * d for d in i["D"]] for i in items], weights)
        return step(w, change, p["server_lr"], items, weights, n)
    bound = p["staleness_bound"]
    for number, i in enumerate(items):
        lengths = sqrt(dot(i["D"], i["D"])) * sqrt(dot(i["drift"], i["drift"]))
        cos = 1.0 if i["tau"] == 0 else dot(i["D"], i["drift"]) / lengths
        weights[number] *= p["similarity_weight"] * (cos + 1) / 2 + p["staleness_weight"] * bound / (i["tau"] + bound)
    return step(w, mean([i["D"] for i in items], weights), 1.0, items, weights, n)


def fedfa(strategy: str, p: dict[str, Any], w: Vec, buffer: list[dict[str, Any]], item: dict[str, Any], n: int) -> Any:
    own = (
        [i for i in buffer if p["one_slot_per_client"] and i["client"] == item["client"]] if "param" in strategy else []
    )
    for old in own:
        buffer.remove(old)
    buffer.append(item)
    del buffer[: max(0, len(buffer) - p["window"])]
    if len(buffer) < p["window"]:
        return None
    weights = [i["n"] for i in buffer]
    if strategy == "fedfa-param":
        return mean([i["w"] for i in buffer], weights)
    if strategy == "fedfa-agree":
        bases, change = mean([i["base"] for i in buffer], weights), mean([i["D"] for i in buffer], weights)
        lr = p.get("server_lr") or by_agreement(p, buffer, weights, change)
        return step(bases, change, lr, buffer, weights, n)
    lr = p.get("server_lr") or 1 / p["concurrency"]
    if strategy == "fedfa-nova":
        steps = mean([[i["a"]] for i in buffer], weights)[0]
        return step(w, mean([[d / i["a"] for d in i["D"]] for i in buffer], weights), lr * steps, buffer, weights, n)
    change = mean([[s(p["staleness"], i["tau"]) * d for d in i["D"]] for i in buffer], weights)
    return step(w, change, lr, buffer, weights, n)


def by_agreement(p: dict[str, Any], buffer: list[dict[str, Any]], weights: list[float], whole: Vec) -> float:
    """Four times the share of the window's mean difference that is surely common, between 1 and 2."""
    clients = sum(weights) ** 2 / sum(weight**2 for weight in weights)
    one = mean([[dot(i["D"], i["D"])] for i in buffer], weights)[0]
    seen = p.setdefault("correlations", [])
    if clients > 1 and one > 0:
        chance = (one - dot(whole, whole)) / (
            1 - 1 / clients
        )  # one = common + chance, whole = common + chance / clients
        seen.append(min(1 - chance / one, 1.0))
    if len(seen) < 2:
        return 1.0
    memory, counts = 4 * p["concurrency"], []
    for number in range(1, len(seen) + 1):  # the newest counts 1 / memory, or all alike while they are fewer
        newest = 1 / min(number, memory)
        counts = [*(count * (1 - newest) for count in counts), newest]
    middle = sum(c * x for c, x in zip(counts, seen, strict=True))
    variance = sum(c * (x - middle) ** 2 for c, x in zip(counts, seen, strict=True))
    apart = max(min(len(seen), 2 * memory - 1) / clients, 1)  # windows that share no update
    surely = max(middle - sqrt(variance / apart), 0)
    return min(max(4 * surely / (surely + (1 - surely) / clients), 1), 2)


def step(w: Vec, change: Vec, lr: float, items: list[dict[str, Any]], weights: list[float], n: int) -> Vec:
    """w + lr * change for the parameters; the mean of the clients' own values for the buffers."""
    head = [x + lr * c for x, c in zip(w[:n], change, strict=True)]
    return head + (mean([i["w"][n:] for i in items], weights) if n < len(w) else [])
