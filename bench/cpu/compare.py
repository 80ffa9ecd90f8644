"""One core: Tessera and each peer alternate in this process."""

from statistics import median

from .case import check
from .report import Row
from .timing import interval, paired

SECTION = "one thread"


def run(report, cases, rounds):
    report.heading(
        f"One thread on one core, median of {rounds} paired rounds",
        "figure: our speed over theirs; at the right the best speed of both",
    )
    for case in cases:
        try:
            problem = case.build()
            check(problem.ours, problem)
            explained = str(problem.kernel.explain())
        except Exception as error:
            report.fail(case.name, "", error)
            continue
        for peer in problem.peers:
            try:
                theirs = peer.make()
                check(theirs, problem)
                report.add(compare(case, problem.ours, peer, theirs, rounds, explained))
            except Exception as error:
                report.fail(case.name, peer.name, error)


def compare(case, ours, peer, theirs, rounds, explained):
    times = paired(ours.run, theirs.run, rounds)
    ratios = times.ratios(ours.work / theirs.work)
    low, high = interval(ratios)
    best = [1e-9 * ours.work / min(times.ours), 1e-9 * theirs.work / min(times.theirs)]
    data = {
        "ours_s": times.ours,
        "theirs_s": times.theirs,
        "minima_ratio": best[0] / best[1],
        "unit": case.unit,
        "ours_best": best[0],
        "theirs_best": best[1],
        "form": theirs.form,
        "tried_s": theirs.tried,
        "explain": explained,
    }
    remark = f"{best[0]:.4g} / {best[1]:.4g} {case.unit}"
    return Row(SECTION, case.name, peer.name, median(ratios), "x", low, high, remark, peer.must, data)
