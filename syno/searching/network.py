"""A task's network with operators in some of its sites: built, trained, timed. What workers of a search run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.errors import KernelError
from syno.machines.model import MachineModel, fixed_kernels
from syno.session.protocols import (
    EAGER,
    ORIGINAL,
    Measurement,
    MeasureRequest,
    OperatorText,
    Predicted,
    PredictRequest,
    SiteTiming,
    TrainRequest,
)
from syno.support.inputs import arguments
from syno.support.streams import Stream
from syno.timing.predicting import Predictor
from syno.training.checkpoint import Checkpoint
from syno.training.task import Task
from syno.training.tasks import load_task

if TYPE_CHECKING:
    from torch import nn

    from syno.operators.operator import Operator
    from syno.session.bundled import ExportRequest
    from syno.torch import Op, Site, Sites
    from syno.training.train import TrainResult


class Network:
    """Builds the networks of a search.

    Args:
        task: a task, or the name of one (see :func:`syno.training.tasks.load_task`) with its options.
        stages: names of the sites that each stage's operator serves.
        batch: of the example that sites and latencies refer to.
        native: whether operators run on native kernels; else on the emitted PyTorch functions.
        fit: batches of training data on which operators are fitted to the layers they stand for, before they are
            trained (:mod:`syno.training.fitting`); 0 leaves them random.
        mixing: whether a network that mixes tokens which the original keeps apart is refused (``"refuse"``) or recorded to
            (``"tell"``) before it is trained; empty: nobody asks.
        compiled: whether a network is timed compiled whole, as it will be used, where it can be (:func:`syno.compile`);
            else layer by layer.
    """

    def __init__(
        self,
        task: Task | str,
        *,
        task_options: Mapping[str, Any] | None = None,
        stages: Mapping[str, Sequence[str]],
        batch: int = 1,
        native: bool = True,
        fit: int = 0,
        mixing: str = "",
        compiled: bool = False,
    ) -> None:
        self.fit = fit
        self.mixing = mixing
        self.compiled = compiled
        self.task = task if isinstance(task, Task) else load_task(task, dict(task_options or {}))
        self.stages = {name: tuple(sites) for name, sites in stages.items()}
        self.batch = batch
        self.native = native
        self._sites: Sites | None = None
        self._operators: dict[str, Operator] = {}
        self._predictors: dict[tuple[str, int], Predictor] = {}
        self._original: dict[int, tuple[nn.Module, str]] = {}

    def sites(self) -> Sites:
        """The sites of the task's model; found once."""
        if self._sites is None:
            from syno.torch import sites

            model = self.task.make_model(self.task.seeds[0])
            with Stream("sites", of=[model], device=self.task.device):
                self._sites = sites(model, self.task.example(self.batch), repeats=1)
        return self._sites

    def operator(self, text: OperatorText) -> Operator:
        """The operator of a session's text; rebuilt once."""
        from syno.operators.operator import Operator

        if text.key not in self._operators:
            self._operators[text.key] = Operator.from_json(text.text)
        return self._operators[text.key]

    def assigned(self, assignment: Mapping[str, OperatorText]) -> dict[str, Operator]:
        """Which operator serves which site."""
        return {
            site: self.operator(text)
            for stage, text in assignment.items()
            for site in self.stages[stage]
        }

    def build(self, assignment: Mapping[str, OperatorText], seed: int) -> nn.Module:
        """A new network; all its weights are drawn with ``seed``, whatever was built before."""
        return place(
            self.task.make_model(seed), self.sites(), self.assigned(assignment), self.native, seed
        )


def _first(pairs: Sequence[tuple[Operator, int]]) -> list[Operator]:
    return [operator for operator, _ in pairs]


def place(
    model: nn.Module,
    sites: Sites,
    operators: Mapping[str, Operator],
    native: bool = True,
    seed: int = 0,
) -> nn.Module:
    """``model`` with ``operators`` in the sites of those names, their weights drawn with ``seed``.

    A new module where there are any.
    """
    from syno.torch import replace

    if not operators:
        return model
    with Stream("operators", seed):
        return replace(model, {sites[name]: op for name, op in operators.items()}, native=native)


def _dtype(site: Site) -> str:
    """What the kernels of a site compute in."""
    import torch

    from syno.torch.ops import computed_in

    found = computed_in(getattr(torch, site.dtype))
    if found is None:
        raise KernelError(f"[measure] {site.name} gets {site.dtype}: no kernel computes in it")
    return found


class NetworkEvaluator(Network):
    """Trains a network with operators in it (the session's ``Evaluator``)."""

    def check(self) -> None:
        """Asked of every machine that is to train, before it does.

        Raises:
            TaskError: it has no such device as the task names.
        """
        self.task.here()

    def evaluate(self, request: TrainRequest, report: Callable[..., None]) -> TrainResult:
        """One training by the task's recipe; leaves the weights where the request says."""
        from syno.training.train import CurveFloor, torch_threads, train

        metric = self.task.metric_object
        stop = None
        if request.floors:
            stop = CurveFloor(
                request.floors,
                higher_is_better=metric.higher_is_better,
                why=request.floors_why or "the curves of other candidates",
            )
        with fixed_kernels(request.machine or None), torch_threads(request.threads):
            model = self.build(request.assignment, request.seed)
            self._fit(model, request)
            result = train(
                self.task,
                model,
                seed=request.seed,
                part=request.part,
                threads=request.threads,
                time_limit_s=request.time_limit_s,
                report=report,
                stop=stop,
                share=request.share,
                checkpoint=self._checkpoint(request),
            )
        if request.weights and result.state == "done":
            from safetensors.torch import save_model

            save_model(model, request.weights)
        return result

    def _checkpoint(self, request: TrainRequest) -> Checkpoint | None:
        """Where this training is written down, under everything that decides its numbers."""
        import torch

        if not request.checkpoint:
            return None
        operators = sorted((stage, op.key) for stage, op in request.assignment.items())
        key = [self.task.name, request.seed, request.part, request.share, request.threads]
        key += [operators, request.machine, request.floors, self.native, self.fit]
        if (self.task.device, self.task.autocast) != ("cpu", None):
            key += [self.task.here().device, self.task.autocast]
        return Checkpoint(Path(request.checkpoint), [*key, torch.__version__], request.checkpoint_s)

    def _fit(self, model: nn.Module, request: TrainRequest) -> None:
        from syno.training.fitting import fit_operators

        sites = list(self.assigned(request.assignment))
        if not self.fit or not sites:
            return
        original = self.task.make_model(request.seed)
        fit_operators(model, original, sites, self.task, seed=request.seed, steps=self.fit)


class NetworkMeasurer(Network):
    """Predicts, builds, verifies and times a network (the session's ``Measurer``)."""

    def predict(self, request: PredictRequest) -> Predicted:
        """Latency of the whole network by a machine file (:mod:`syno.timing.predicting`); nothing is compiled or run."""
        predictor = self._predictor(request.machine, request.threads)
        model = self.build(request.assignment, self.task.seeds[0])
        return Predicted(
            latency_us=predictor.latency_us(self.assigned(request.assignment)),
            flops=self.flops(request.assignment),
            params=sum(p.numel() for p in model.parameters()),
        )

    def _predictor(self, machine: str, threads: int) -> Predictor:
        known = self._predictors.get((machine, threads))
        if known is None:
            model = self.task.make_model(self.task.seeds[0])
            with Stream("sites", of=[model], device=self.task.device):
                known = Predictor(
                    model,
                    self.task.example(self.batch),
                    self.sites(),
                    MachineModel.from_json(machine),
                    threads=threads,
                    dtype=_dtype,
                )
            self._predictors[machine, threads] = known
        return known

    def measure(self, request: MeasureRequest) -> Measurement:
        """Latency of the whole network, as it will be used, in turns with the original; and of one call of every site in
        a stage, by its layer.

        Raises:
            KernelError: a site has no verified kernel.
        """
        import torch

        from syno.timing.bench import measure
        from syno.timing.measuring import measuring
        from syno.training.train import torch_threads

        with torch_threads(request.threads):
            model = self.build(request.assignment, self.task.seeds[0]).eval()
            example = self.task.example(self.batch)
            with torch.inference_mode():
                mixing = self.mixed(request.assignment)
            self._compile(request.assignment, request.threads)
            original, why = self.original(request.threads)
            networks = {"network": model if request.assignment else original}
            if request.assignment:
                why = self.compile_whole(model, request.threads)
                networks[ORIGINAL] = original
            elif self.compiled and not why:
                networks[EAGER] = model
            args, named = arguments(model, example)

            def call(network: nn.Module) -> Callable[[], Any]:
                return lambda: network(*args, **named)

            with measuring() as had, torch.inference_mode():
                timings = self._times_of_sites(model, request)
                functions = {name: call(each) for name, each in networks.items()}
                timed = measure(functions, threads=request.threads, one_pool=True)
            network = timed[0]
        checked = [timing for timing in timings.values() if timing.max_rel_err is not None]
        return Measurement(
            latency_us=network.median_us,
            iqr_us=network.iqr_us,
            samples=network.samples,
            threads=request.threads,
            batch=self.batch,
            flops=self.flops(request.assignment),
            params=sum(p.numel() for p in model.parameters()),
            verified=bool(checked) and all(timing.verified for timing in checked),
            max_rel_err=max(
                (t.max_rel_err for t in checked if t.max_rel_err is not None), default=None
            ),
            sites=timings,
            peers_us={one.name: one.median_us for one in timed[1:]},
            notes=[had.note] if had.note else [],
            mixing=mixing,
            runner="layers" if why or not self.compiled else "compiled",
            why_layers=why,
        )

    def export(self, request: ExportRequest) -> None:
        """Compiles a network whole and writes it down, for a target that times it from its files.

        Raises:
            SynoError: PyTorch would compute a part of it, or it cannot be exported.
        """
        from syno.session.bundled import exported
        from syno.training.train import torch_threads

        with torch_threads(request.threads):
            exported(request, lambda: self._exportable(request.assignment))

    def _exportable(self, assignment: Mapping[str, OperatorText]) -> tuple[nn.Module, Any]:
        model = self.build(assignment, self.task.seeds[0]).eval()
        return model, self.task.example(self.batch)

    def original(self, threads: int) -> tuple[nn.Module, str]:
        """The original as it will be used, and why it is not compiled; made once."""
        import copy

        known = self._original.get(threads)
        if known is None:
            model = copy.deepcopy(self.task.make_model(self.task.seeds[0])).eval()
            known = self._original[threads] = (model, self.compile_whole(model, threads))
        return known

    def compile_whole(self, model: nn.Module, threads: int) -> str:
        """Has the compiled network answer a model's calls in inference, and says why not where that cannot be; empty also
        where nobody asked for it."""
        if not self.compiled:
            return ""
        from syno.graph.serving import compiled_or_why

        made = compiled_or_why(model, self.task.example(self.batch), threads=threads)
        return made if isinstance(made, str) else ""

    def mixed(self, assignment: Mapping[str, OperatorText]) -> str:
        """Which examples and tokens the network mixes beside the original (:mod:`syno.searching.mixing`); empty for that one.

        Raises:
            KernelError: it mixes what the original keeps apart, and was not told to.
        """
        from syno.searching.mixing import EXAMPLES, compare_mixing
        from syno.session.verdict import MIXES

        assigned = self.assigned(assignment)
        if not assigned or not self.mixing:
            return ""
        layers = [self.sites()[name].layer for name in assigned]
        linear = all(layer is not None and layer.kind == "linear" for layer in layers)
        model = self.task.make_model(self.task.seeds[0])
        said = compare_mixing(
            model,
            place(model, self.sites(), assigned, native=False),
            self.task.example(2),
            keep_tokens=linear,
        )
        if said.startswith(MIXES) and (self.mixing == "refuse" or EXAMPLES in said):
            raise KernelError(
                f"[measure] {said}. Give search(mix_tokens=True) where that is wanted"
            )
        return said

    def _times_of_sites(self, model: nn.Module, request: MeasureRequest) -> dict[str, SiteTiming]:
        timings = {}
        known: dict[Any, SiteTiming] = {}
        for name in (name for stage in self.stages.values() for name in stage):
            site = self.sites()[name]
            operator = self.assigned(request.assignment).get(name)
            # Equal layers at equal sizes are timed once.
            same = (operator and operator.canonical_hash, site.layer, site.calls[0].input)
            if same not in known:
                known[same] = self._site(model, site, request.threads)
            timings[name] = known[same]
        return timings

    def flops(self, assignment: Mapping[str, OperatorText]) -> int:
        """Multiply-adds of one run of the example: of all convolution and linear layers."""
        from syno.torch.replace import at_fit

        operators = self.assigned(assignment)
        total = 0
        for site in self.sites():
            if site.name in operators:
                operator = operators[site.name]
                for call, fit in zip(site.calls, site.fits, strict=True):
                    total += at_fit(operator, fit).flops * call.count
            else:
                total += site.flops
        return total

    def _compile(self, assignment: Mapping[str, OperatorText], threads: int) -> None:
        """Makes and checks every distinct kernel of the network, as many at a time as there are threads."""
        from concurrent.futures import ThreadPoolExecutor

        from syno.kernels.kernel import compile
        from syno.torch.replace import at_fit
        from syno.tuning.latency import distinct

        if not self.native:
            return
        operators: dict[str, list[Operator]] = {}
        for name, operator in self.assigned(assignment).items():
            site = self.sites()[name]
            operators.setdefault(_dtype(site), []).extend(at_fit(operator, f) for f in site.fits)
        with ThreadPoolExecutor(max_workers=threads) as pool:
            for dtype, ones in operators.items():

                def make(one: Operator, dtype: str = dtype) -> Any:
                    return compile(one, dtype=dtype, threads=threads)

                for _ in pool.map(make, _first(distinct(ones))):
                    pass

    def _site(self, model: nn.Module, site: Site, threads: int) -> SiteTiming:
        import torch

        from syno.timing.bench import measure
        from syno.torch import Op

        module = model.get_submodule(site.name)
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(site.calls[0].input, generator=generator)
        x = x.to(getattr(torch, site.dtype))
        timing = measure({"site": lambda: module(x)}, threads=threads, turns=9)[0]
        found = SiteTiming(latency_us=timing.median_us, iqr_us=timing.iqr_us)
        if not isinstance(module, Op):
            return found
        error, verified = self._checked(module, site, threads)
        return SiteTiming(
            latency_us=found.latency_us, iqr_us=found.iqr_us, verified=verified, max_rel_err=error
        )

    def _checked(self, module: Op, site: Site, threads: int) -> tuple[float | None, bool]:
        """Error and verdict of the kernel that serves a site, at the shapes of its first call."""
        from syno.kernels.kernel import compile
        from syno.torch.replace import at_fit

        if not self.native:
            return None, False
        operator = at_fit(module.operator, site.fits[0])
        kernel = compile(operator, dtype=_dtype(site), threads=threads)
        if kernel.verification is None:
            raise KernelError(f"[measure] the kernel of {site.name} was never checked")
        return kernel.verification.max_rel_err, kernel.verification.passed
