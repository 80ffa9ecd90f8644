"""Distributions of ratios by family, and the worst programs with what their rows say of the reason."""

import math

import numpy as np

#: Below this many microseconds of the peer, a difference counts and not a ratio.
SHORT_US = 20.0


def spread(values):
    """`5th percentile, median, geometric mean` of ratios."""
    if not values:
        return None
    low, middle = np.quantile(values, (0.05, 0.5))
    return {"count": len(values), "p5": float(low), "median": float(middle), "geomean": float(np.exp(np.mean(np.log(values))))}


def summary(rows):
    """Of each family: ratios to the best peer where that is long enough, differences where it is short, ratios to a copy."""
    found = {}
    for family in dict.fromkeys(row["family"] for row in rows):
        own = [row for row in rows if row["family"] == family]
        timed = [row for row in own if row["status"] == "timed"]
        long = [row for row in timed if row["peer_us"] >= SHORT_US]
        short = [row["ours_us"] - row["peer_us"] for row in timed if row["peer_us"] < SHORT_US]
        found[family] = {
            "programs": len(own), "failed": sum(row["status"] in ("wrong", "error") for row in own),
            "peer": spread([row["ratio"] for row in long if row["peer"]]), "all": spread([row["ratio"] for row in timed]),
            "copy": spread([row["of_copy"] for row in timed if "of_copy" in row]), "roof": spread([row["roof"] for row in timed]),
            "short": {"count": len(short), "median_us": float(np.median(short))} if short else None,
            "tuned": spread([row["of_tuned"] for row in own if "of_tuned" in row]),
        }  # fmt: skip
    return found


def table(rows):
    head = f"{'family':<20} {'programs':>8} {'failed':>6} | of the best peer, from {SHORT_US:.0f} us: n, 5th, median, geomean"
    lines = [head + " | shorter: n, us | of a copy: 5th, median | of the roof: median | untuned of tuned: n, 5th, median"]
    number = lambda part, *names: " ".join(f"{part[n]:7.3f}" for n in names) if part else " " * (8 * len(names) - 1)  # noqa: E731
    for family, s in summary(rows).items():
        peer, short, tuned = s["peer"], s["short"], s["tuned"]
        line = f"{family:<20} {s['programs']:>8} {s['failed']:>6} | {peer['count'] if peer else 0:>4} {number(peer, 'p5', 'median', 'geomean')} | "
        line += f"{short['count']:>4} {short['median_us']:+6.1f} | " if short else " " * 11 + " | "
        line += f"{number(s['copy'], 'p5', 'median')} | {number(s['roof'], 'median')} | "
        line += f"{tuned['count']:>4} {number(tuned, 'p5', 'median')}" if tuned else ""
        lines.append(line)
    return "\n".join(lines)


def reasons(row, processors):
    """What a row's data says of why it is slow."""
    found = [f"{row['bound']}-bound, {row['roof']:.2f} of the roof"]
    if row["peer_us"] < SHORT_US:
        found.append(f"short: {row['ours_us']:.1f} us against {row['peer_us']:.1f}")
    launches = row.get("launches") or []
    if len(launches) > 1:
        found.append(f"{len(launches)} launches: {', '.join(launch['kernel'] for launch in launches)}")
    if launches:
        last = max(launches, key=lambda launch: math.prod(launch["grid"] or [1]))
        groups = math.prod(last["grid"] or [1])
        if processors > 1 and groups < processors:
            found.append(f"{groups} groups on {processors} SMs")
        elif processors > 1 and groups < 4 * processors and groups % processors:
            part = groups % processors / processors
            found.append(f"{groups} groups: the last wave has {part:.2f} of the SMs")
        spilled = int(last["resources"].get("local_bytes", 0) or 0)
        if spilled:
            found.append(f"{spilled} bytes of spills")
        if last["config"]:
            found.append(f"{last['kernel']} {schedule(last['config'])}")
    odd = [f"{name} {pitch}" for name, pitch in row["pitches"].items() if pitch % 16]
    if odd:
        found.append(f"pitches off 16 bytes: {', '.join(odd)}")
    if row.get("plan"):
        found.append(row["plan"].split("; then")[0])
    tuned = next((launch["tuned"] for launch in launches if launch["tuned"]), "")
    if "of_tuned" in row and tuned:
        found.append(tuned)
    return "; ".join(found)


#: Names of tile sides and schedules among what a configuration has.
SCHEDULED = ("BM", "BN", "BK", "R", "C", "T", "W", "A", "B", "num_warps", "num_stages", "cluster_m", "cluster_n")


def schedule(config):
    """The schedule's part of a configuration."""
    import ast

    try:
        values = ast.literal_eval(config)
    except (SyntaxError, ValueError):
        return config[:80]
    return " ".join(f"{name}={values[name]}" for name in SCHEDULED if values.get(name))


def worst(rows, processors, count=10):
    """The rows with the least ratio to the best peer, or to the best candidate, with reasons: those of long calls."""
    timed = [row for row in rows if row["status"] == "timed" and row["peer_us"] >= SHORT_US]
    lines = []
    for row in sorted(timed, key=lambda row: row.get("of_tuned", row["ratio"]))[:count]:
        figure = f"{row['ratio']:.3f} of {row['peer']} ({row['ours_us']:.0f} us against {row['peer_us']:.0f})"
        if "of_tuned" in row:
            figure = f"{row['of_tuned']:.3f} of {row['best']} ({row['ours_us']:.0f} us)"
        lines.append(f"  {figure}  {row['name']}  {row['title']}")
        lines.append(f"        {reasons(row, processors)}")
    return "\n".join(lines)


def show(rows, processors, each=False):
    parts = [table(rows), "", "The ten worst:", worst(rows, processors)]
    if each:
        for family in dict.fromkeys(row["family"] for row in rows):
            parts += ["", f"The worst of {family}:", worst([r for r in rows if r["family"] == family], processors)]
    failed = [row for row in rows if row["status"] in ("wrong", "error")]
    if failed:
        parts += ["", f"{len(failed)} programs failed:"]
        parts += [f"  {row['name']}  {row['title']}: {row['status']}: {row['why']}" for row in failed]
    return "\n".join(parts)
