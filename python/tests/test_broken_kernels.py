"""Every broken kernel is reported at its line; every fixed version has no findings."""

import inspect
import re

import broken_kernels as corpus
import pytest


def marked(kernel):
    """Line and code of the comment in a kernel's source."""
    lines, first = inspect.getsourcelines(kernel.__wrapped__)
    (found,) = [(first + i, re.search(r"# finds: (\w+)", line)) for i, line in enumerate(lines) if "# finds:" in line]
    return found[0], found[1].group(1)


@pytest.mark.parametrize("name", sorted(corpus.ARGS))
def test_broken_kernel_is_caught_at_its_line(name):
    kernel = getattr(corpus, f"{name}_broken")
    report = kernel.check(*corpus.ARGS[name](False))
    assert marked(kernel) in [(d.line, d.code) for d in report.findings], str(report)


@pytest.mark.parametrize("name", sorted(corpus.ARGS))
def test_repaired_kernel_is_clean(name):
    report = getattr(corpus, f"{name}_fixed").check(*corpus.ARGS[name](True))
    assert report, str(report)


def test_the_corpus_is_large_enough_to_mean_something():
    assert len(corpus.ARGS) >= 20
