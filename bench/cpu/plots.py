"""Plots: ratios with their intervals, and growth."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402

COLOURS = {"MKL": "tab:blue", "XLA": "tab:red", "NumPy": "tab:green", "copy": "tab:gray", "1 thread": "tab:purple"}


def draw(report, curves):
    """Draws the plots and returns their files."""
    paths = []
    rows = [row for row in report.rows if row.section in ("one thread", "scaling")]
    if rows:
        paths.append(draw_ratios(rows, f"{report.stem}-ratios.png"))
    for work, curve in curves.items():
        if curve["points"]:
            paths.append(draw_growth(work, curve, f"{report.stem}-growth-{work.replace(' ', '-')}.png"))
    return paths


def draw_ratios(rows, path):
    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.22 * len(rows)), layout="constrained")
    for y, row in enumerate(rows):
        colour = COLOURS[row.against.split(",")[0]]
        axes.plot([row.low, row.high], [y, y], color=colour, linewidth=3, alpha=0.5)
        axes.plot(row.figure, y, "o", color=colour, markersize=4)
        if row.must:
            axes.plot(row.must.value, y, "|", color="black", markersize=9)
    axes.set_yticks(range(len(rows)), [f"{row.work}  /  {row.against}" for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.axvline(1, color="black", linewidth=0.5)
    axes.grid(axis="x", linewidth=0.3)
    axes.set_xlabel("our speed / theirs: median and 95% interval; | marks what is promised")
    return save(figure, path)


def draw_growth(work, curve, path):
    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    points = sorted(curve["points"])
    even = [p for p in points if p[0] % 2 == 0]
    odd = [p for p in points if p[0] % 2]
    axes.plot(*zip(*even), "o-", markersize=4, linewidth=1, label="even sizes")
    axes.plot(*zip(*odd), "x", color="tab:red", markersize=5, label="odd neighbours")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("elements" if work == "saxpy" else "n, of an n x n x n matmul")
    axes.set_ylabel(f"ns per {curve['unit']}, least of all runs")
    axes.set_title(f"{work}, one thread")
    axes.grid(which="both", linewidth=0.3)
    axes.legend()
    return save(figure, path)


def save(figure, path):
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return path
