"""How many times as fast as the original a network is, and how well that is known."""

from __future__ import annotations

import math
from dataclasses import dataclass

from syno.session.final_bench import FinalBench
from syno.session.interval import stderr_of_median
from syno.session.records import Candidate, Timing


@dataclass(frozen=True)
class Speeds:
    """What speedups follow from: the original and its latencies, and the last measurement in turns; ``None`` where there is
    none."""

    baseline: Candidate | None
    final: FinalBench | None

    def of(self, candidate: Candidate, target: str | None = None) -> float | None:
        """As :meth:`syno.session.SessionView.speedup`."""
        if target is not None:
            pair = self._pair_on(candidate, target)
            return None if pair is None else pair[1].latency_us / pair[0].latency_us
        if self.final is not None and candidate.id in self.final.speedups:
            return self.final.speedups[candidate.id]
        if self.baseline is None:
            return None
        cost, reference = candidate.latency_us, self.baseline.latency_us
        if cost is None or reference is None:
            cost, reference = candidate.flops, self.baseline.flops
        if cost is None or reference is None or not cost > 0:
            return None
        return reference / cost

    def stderr(self, candidate: Candidate, target: str | None = None) -> float:
        """As :meth:`syno.session.SessionView.speedup_stderr`."""
        speedup = self.of(candidate, target)
        if speedup is None:
            return 0.0
        if target is not None:
            pair = self._pair_on(candidate, target) or ()
            both = [stderr_of_median(t.iqr_us, t.samples) / t.latency_us for t in pair]
            return speedup * math.hypot(*both)
        final = self.final
        if final is not None and candidate.id in final.speedups:
            return stderr_of_median(final.speedup_iqrs.get(candidate.id, 0.0), final.samples)
        parts = []
        for one in (candidate, self.baseline):
            timings = one.timings if one is not None else []
            whole = next((t for t in timings if not t.site and t.runner == "syno"), None)
            if whole is not None and whole.latency_us > 0:
                parts.append(stderr_of_median(whole.iqr_us, whole.samples) / whole.latency_us)
        return speedup * math.hypot(*parts)

    def same_runner(self, candidate: Candidate) -> str:
        """As :meth:`syno.session.SessionView.same_runner`."""
        final, baseline = self.final, self.baseline
        if final is not None and candidate.id in final.speedups:
            own, its = (
                final.runners.get(n, "").partition(":")[0] for n in (candidate.id, "baseline")
            )
        else:
            own, its = candidate.runner, "" if baseline is None else baseline.runner
        return own if own == its else ""

    def _pair_on(self, candidate: Candidate, target: str) -> tuple[Timing, Timing] | None:
        """The network's and the original's latency on a target."""
        own = candidate.timing_on(target)
        its = None if self.baseline is None else self.baseline.timing_on(target)
        return None if own is None or its is None or not own.latency_us > 0 else (own, its)
