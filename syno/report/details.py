"""What a report says beside its numbers: layers before and after, why finalists were finalists, operators in words, code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syno.errors import SynoError
from syno.report.listed import by_reward
from syno.report.model import Replaced
from syno.session.records import COMBINED, Candidate
from syno.session.verdict import Verdict
from syno.support.numbers import significant

if TYPE_CHECKING:
    from syno.session.view import SessionView


def replaced_layers(view: SessionView, candidate: Candidate, sites: Any) -> list[Replaced]:
    """Each layer that the candidate's network has an operator for."""
    from syno.torch.replace import at_fit

    stages = view.config.evaluator.options.get("stages", {})
    before = _times(view.baseline)
    after = _times(candidate)
    found = []
    for stage, operator in view.operators(candidate).items():
        for name in stages.get(stage, ()):
            site = sites[name]
            calls = [at_fit(operator, fit) for fit in site.fits]
            flops = sum(one.flops * call.count for one, call in zip(calls, site.calls, strict=True))
            bias = site.layer.out_channels if site.layer.bias else 0
            found.append(
                Replaced(
                    site=name,
                    layer=_layer(site.layer),
                    before_us=before.get(name),
                    after_us=after.get(name),
                    before_flops=site.flops,
                    after_flops=flops,
                    before_params=site.params,
                    after_params=calls[0].params + bias,
                )
            )
    return found


def _times(candidate: Candidate | None) -> dict[str, float]:
    timings = candidate.timings if candidate is not None else []
    return {t.site: t.latency_us for t in timings if t.site and t.runner == "syno"}


def _layer(layer: Any) -> str:
    window = "×".join(map(str, layer.kernel))
    size = f" {window}" if window else ""
    return f"{layer.kind}{size}, {layer.in_channels} → {layer.out_channels} channels"


def why_finalists(view: SessionView) -> dict[str, str]:
    """By id: what chose it, as it was recorded."""
    finalists = view.finalists
    if not finalists:
        return {}
    done, rewards = view.rewards("done")
    ranked = done[by_reward(done, rewards)].tolist()
    place = {number: i for i, number in enumerate(ranked, 1)}
    baseline = view.baseline
    found = {}
    for candidate in view.chosen([number for number in finalists if number in place]):
        if candidate.score is None:
            continue
        score = candidate.score
        speed = ""
        if baseline is not None and baseline.latency_us and candidate.latency_us:
            ratio = baseline.latency_us / candidate.latency_us
            speed = f" at {ratio:.2f} times the original's speed"
        found[candidate.id] = (
            f"place {place[candidate.number]} of {len(done)} by the search's reward, which weighs quality with speed "
            f"({significant(candidate.reward or 0.0, 3)}): {score.metric} {significant(score.value, 4)} on "
            f"validation after one training{speed}"
        )
    return found


def operators_in_words(view: SessionView, most: int = 8) -> dict[str, str]:
    """By key: operators of finalists and of the fronts, ``most`` at a time, that are not described yet and whose space the
    session names. Takes seconds where layers are large: a run does it once, at its end."""
    specs = {
        stage.name: stage.proposer.options["spec"]
        for stage in view.config.stages
        if isinstance(stage.proposer.options.get("spec"), str)
    }
    chosen = [*view.trained_again(), *view.pareto("test"), *view.pareto()]
    done = view.words
    wanted = {
        key: stage
        for c in chosen
        for stage, key in view.assignment(c).items()
        if stage in specs and key not in done
    }
    if not wanted:
        return {}
    from syno import _core
    from syno.operators.in_words import in_words, known_operators

    known: dict[str, Any] = {}
    found = {}
    for key, stage in list(wanted.items())[:most]:
        graph = view.operator_of(key).pgraph
        if graph is None:
            continue
        try:
            if stage not in known:
                spec = _core.Spec.from_json(specs[stage])
                known[stage] = (spec, known_operators(spec))
            found[key] = in_words(graph, *known[stage])
        except SynoError:
            continue  # an operator that reads nothing, say
    return found


def words_of(view: SessionView, candidate: Candidate) -> str:
    """A candidate's operators in plain sentences, as far as they are described; empty where none is."""
    words = view.words
    if candidate.kind != COMBINED:
        return words.get(candidate.key, "")
    said = {s: words[k] for s, k in view.assignment(candidate).items() if k in words}
    return " ".join(f"In {stage}: {text}" for stage, text in said.items())


def code_to_use(view: SessionView, verdict: Verdict) -> str:
    """Lines of Python that give the network and write it down; none where nothing leads."""
    id = verdict.best or verdict.leader
    if id is None or not view.candidate(id).finals:
        return ""
    chosen = f"result.best({verdict.max_drop:g})" if verdict.best else f'result["{id}"]'
    remark = "" if verdict.best else "  # not proven, see above"
    return "\n".join(
        [
            "import syno",
            f"result = syno.Result.load({str(view.directory)!r})",
            f"found = {chosen}{remark}",
            "fast = found.apply()                # the network with its trained weights; or apply(model)",
            'syno.export(fast, "fast.syno", example=result.example)',
        ]
    )
