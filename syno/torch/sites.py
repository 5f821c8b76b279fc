"""Sites: the layers of a user's model that an operator could take the place of.

`sites()` runs the model on an example with forward hooks; nothing is traced and nothing changed.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import html
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter

from syno.errors import ShapeError, SynoError, UnknownName
from syno.support.arguments import checked
from syno.support.inputs import MISFITS, arguments, as_inputs, tensors, unwrapped, why_not
from syno.support.numbers import MOST_SEED, MOST_THREADS, significant, whole
from syno.timing.bench import waiting
from syno.torch.groups import SiteGroup, group_sites
from syno.torch.layers import CONVOLUTIONS, Description, Fit, Layer, describe, output_shape
from syno.torch.products import Product, Products
from syno.torch.signatures import group_key, joined

KINDS = (*(kind for kind, _ in CONVOLUTIONS.values()), "linear")


@dataclass(frozen=True)
class Call:
    """Calls of a layer with one shape during the example run.

    `input` and `output` are the shapes of its tensors, batch included; `count` is how many such calls there were.
    """

    input: tuple[int, ...]
    output: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class Site:
    """One layer of the model, or one weight that the model multiplies with outside of layers.

    `name` is the layer's (or the weight's) in the model, `kind` what it is, such as "conv2d", "conv_transpose1d" or
    "linear"; `layer` has its channels, window, stride and so on, `calls` the shapes that the example called it with.
    `flops` are multiply-adds of all its calls in one run of the example, `time_us` their median time
    in microseconds, `share_of_time` that time in the whole run's. `reason` says why the layer cannot
    be replaced, and is empty when it can.
    """

    name: str
    kind: str
    layer: Layer | None
    calls: tuple[Call, ...]
    time_us: float
    share_of_time: float
    reason: str = ""
    also: tuple[str, ...] = ()
    """Further names under which the model holds the same module."""
    dtype: str = "float32"
    """Of the input in the example, by torch's name."""

    @property
    def replaceable(self) -> bool:
        return not self.reason

    @property
    def flops(self) -> int:
        if self.layer is None:
            return 0
        return sum(self.layer.flops(call.output) * call.count for call in self.calls)

    @property
    def params(self) -> int:
        return self.layer.params if self.layer else 0

    @property
    def call_count(self) -> int:
        return sum(call.count for call in self.calls)

    @property
    def fits(self) -> tuple[Fit, ...]:
        """The operator's view of each call, in the order of `calls`."""
        if self.layer is None:
            return ()
        return tuple(self.layer.fit(call.input, call.output) for call in self.calls)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        layer = dataclasses.asdict(self.layer) if self.layer else None
        return {
            "name": self.name,
            "kind": self.kind,
            "layer": layer,
            "calls": [dataclasses.asdict(call) for call in self.calls],
            "flops": self.flops,
            "params": self.params,
            "time_us": self.time_us,
            "share_of_time": self.share_of_time,
            "replaceable": self.replaceable,
            "reason": self.reason,
            "also": list(self.also),
            "dtype": self.dtype,
        }


_COLUMNS = ("site", "kind", "layer", "input", "output", "calls", "MFLOPs", "time us", "share", "")


class Sites(Sequence[Site]):
    """The sites of one model, in the order of its modules; prints as a table. Made by `syno.sites`, and by `where` and slices
    of another."""

    def __init__(self, sites: Sequence[Site], total_us: float, threads: int) -> None:
        self._sites = tuple(sites)
        self.total_us = total_us
        """Median time of the whole model on the example, microseconds."""
        self.threads = threads
        """Of PyTorch while it was timed."""

    def __len__(self) -> int:
        return len(self._sites)

    def __iter__(self) -> Iterator[Site]:
        return iter(self._sites)

    def __getitem__(self, index: int | slice | str) -> Any:
        """A site by position or by name; a slice gives `Sites`."""
        if isinstance(index, slice):
            return Sites(self._sites[index], self.total_us, self.threads)
        if isinstance(index, int):
            return self._sites[index]
        for site in self._sites:
            if index == site.name or index in site.also:
                return site
        names = ", ".join(site.name for site in self._sites) or "none"
        raise UnknownName(f"[sites] no site is named {index!r}; there are: {names}")

    @checked()
    def where(
        self,
        *,
        kind: str | Sequence[str] | None = None,
        share_of_time: float = 0.0,
        share_of_flops: float = 0.0,
        name: str | None = None,
        predicate: Callable[[Site], bool] | None = None,
    ) -> Sites:
        """The replaceable sites of these kinds with at least these shares of time and of multiply-adds.

        Times differ from run to run, multiply-adds do not. Both are parts of the whole list's.

        Args:
            kind: of the layer, or several.
            share_of_time, share_of_flops: 0 to 1, the least of a site.
            name: a shell pattern, ``layer3.*``.
            predicate: a function that says whether a site is wanted.
        Raises:
            UnknownName: there is none of a kind.
        """
        kinds = (kind,) if isinstance(kind, str) else tuple(kind) if kind is not None else KINDS
        for wanted in kinds:
            if wanted not in KINDS:
                raise UnknownName(
                    f"[sites] kind {wanted!r} is not one of the kinds there are: {', '.join(KINDS)}"
                )
        whole = sum(site.flops for site in self._sites)
        chosen = [
            site
            for site in self._sites
            if site.replaceable
            and site.kind in kinds
            and site.share_of_time >= share_of_time
            and site.flops >= share_of_flops * whole
            and (name is None or fnmatch.fnmatchcase(site.name, name))
            and (predicate is None or predicate(site))
        ]
        return Sites(chosen, self.total_us, self.threads)

    def groups(self) -> list[SiteGroup]:
        """Replaceable sites by symbolic shapes, the most multiply-adds first."""
        return group_sites([site for site in self._sites if site.replaceable])

    def to_dict(self) -> dict[str, Any]:
        """All of them as plain data."""
        return {
            "total_us": self.total_us,
            "threads": self.threads,
            "sites": [site.to_dict() for site in self._sites],
        }

    def rows(self) -> list[tuple[str, ...]]:
        """The cells of the table, one row per site."""
        return [_row(site) for site in self._sites]

    def __repr__(self) -> str:
        rows = [_COLUMNS, *self.rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows
        ]
        lines.append(
            f"{sum(s.replaceable for s in self)} of {len(self)} sites can be replaced; the model "
            f"takes {significant(self.total_us)} us on {self.threads} thread{'s' * (self.threads != 1)}"
        )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        def cells(tag: str, row: Sequence[str]) -> str:
            return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in row) + "</tr>"

        body = "".join(cells("td", row) for row in self.rows())
        return f"<table><thead>{cells('th', _COLUMNS)}</thead><tbody>{body}</tbody></table>"


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _row(site: Site) -> tuple[str, ...]:
    inputs = " ".join(_shape(call.input) for call in site.calls)
    outputs = " ".join(_shape(call.output) for call in site.calls)
    note = site.reason and f"skipped: {site.reason}"
    if not note:
        note = "; ".join(dict.fromkeys(fit.describe() for fit in site.fits if not fit.exact))
    return (
        site.name,
        site.kind,
        _attributes(site.layer),
        inputs,
        outputs,
        str(site.call_count),
        f"{site.flops / 1e6:.2f}",
        significant(site.time_us),
        f"{site.share_of_time:.1%}",
        note,
    )


def _attributes(layer: Layer | None) -> str:
    if layer is None or layer.kind == "linear":
        return ""
    parts = [_shape(layer.kernel)]
    for letter, values in (("s", layer.stride), ("d", layer.dilation), ("g", (layer.groups,))):
        if set(values) != {1}:
            parts.append(letter + joined(values))
    return " ".join(parts)


@checked(but=("model", "repeats", "threads"))
def sites(
    model: nn.Module,
    *example: Any,
    repeats: int = 5,
    threads: int = 1,
    **named_example: Any,
) -> Sites:
    """Every layer and function of `model` that sums products with a weight, from runs on an example input.

    Convolutions and linear layers can be replaced; the others are listed with the reason why not.

    Args:
        model: any module; it runs in evaluation mode without gradients and is left as it was. Of what
            `torch.compile` returned, the layers are those of the module it was given.
        example: positional arguments of one call; `named_example` its keyword arguments. A single tuple or
            dictionary is spread over the model's parameters, see `syno.support.inputs`. NumPy arrays are taken, too.
        repeats: timed runs; times are medians over them.
        threads: of PyTorch during the runs.
    Raises:
        ShapeError: the model multiplies with no weight at all, does not run on the example, or is no
            module; `repeats` or `threads` is below 1.
    """
    repeats = whole("sites", "repeats", repeats, 1, MOST_SEED, ShapeError)
    threads = whole("sites", "threads", threads, 1, MOST_THREADS, ShapeError)
    model = _plain_module(model)
    lazy = next(
        (n for n, p in model.named_parameters() if isinstance(p, UninitializedParameter)), None
    )
    if lazy is not None:
        raise ShapeError(
            f"[sites] {lazy} has no shape yet (a lazy layer), and a run of the example would give it "
            "one: call the model once yourself, then look for sites"
        )
    args, named = _arguments(model, example, named_example)
    found = _candidates(model)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with _eager(model):
            record = _observe(model, found, args, named, repeats)
    finally:
        torch.set_num_threads(before)
    if not found and not record.products:
        raise ShapeError(
            f"[sites] {type(model).__name__} has no Conv1d, Conv2d, Conv3d or Linear layer: there is "
            "nothing an operator could replace"
        )
    total = record.total_us
    result = []
    shared = _shared_parameters(model)
    for names, module, description in found:
        calls = record.calls(module)
        reason = description.reason or record.trouble.get(id(module), "")
        if not reason and not calls:
            reason = _never_called(names, record)
        if not reason and any(0 in call.input for call in calls):
            reason = "the example calls it with an empty tensor"
        if not reason and id(module.weight) in shared:
            reason = "its weight is shared with another layer"
        layer = description.layer
        if not reason and layer and any(output_shape(layer, c.input) != c.output for c in calls):
            reason = "the example calls it with output_size=, which an operator does not take"
        us = record.time_us(module)
        share = us / total if total else 0.0
        site = Site(
            names[0],
            description.kind,
            description.layer,
            calls,
            us,
            share,
            reason,
            names[1:],
            record.dtypes.get(id(module), "float32"),
        )
        if not reason and len({group_key(site.layer, fit) for fit in site.fits if site.layer}) > 1:
            reason = "the example calls it with inputs of different ranks"
            site = dataclasses.replace(site, reason=reason)
        result.append(site)
    result += _functional(found, record)
    return Sites(result, total, threads)


def _plain_module(model: Any) -> nn.Module:
    """The module whose layers are meant. Raises ShapeError where there are none to see."""
    plain = unwrapped(model)
    if isinstance(plain, torch.jit.ScriptModule):
        raise ShapeError(
            f"[sites] {type(model).__name__} is TorchScript, whose layers cannot be replaced: give the "
            "PyTorch module that it was made of"
        )
    if not isinstance(plain, nn.Module):
        given = model.__name__ if isinstance(model, type) else type(model).__name__
        what = (
            "a class: make an object of it," if isinstance(model, type) else "no torch.nn.Module;"
        )
        raise ShapeError(f"[sites] {given} is {what} pass the model itself, such as MyNet()")
    return plain


def _arguments(
    model: nn.Module, example: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if named:
        whole = as_inputs({"": example, **named})
        return whole.pop(""), whole
    if len(example) == 1:
        return arguments(model, as_inputs(example[0]))
    return as_inputs(example), {}


def _eager(model: nn.Module) -> Any:
    """Parts that `torch.compile` was given run as they were written, so that hooks see their layers."""
    compiled = any(
        "_orig_mod" in module._modules or getattr(module, "_compiled_call_impl", None) is not None
        for module in model.modules()
    )
    stance = getattr(torch.compiler, "set_stance", None)
    return stance("force_eager") if compiled and stance is not None else nullcontext()


def _never_called(names: Sequence[str], record: _Record) -> str:
    for name in names:
        product = record.products.get(f"{name}.weight" if name else "weight")
        if product is not None:
            return f"its weight is read by {_operation(product)}, not through the layer"
    return "the example never calls it (its parent may read the weight itself)"


def _operation(product: Product) -> str:
    return product.operation.replace("aten::", "torch.")


def _functional(
    found: Sequence[tuple[tuple[str, ...], nn.Module, Description]], record: _Record
) -> list[Site]:
    """Weights in products outside of all layers that are listed."""
    listed = {name for names, _, _ in found for name in names}
    sites = []
    for product in record.products.values():
        if product.weight.rpartition(".")[0] in listed:
            continue  # that layer's row says so
        us = product.seconds * 1e6
        sites.append(
            Site(
                product.weight,
                product.kind,
                None,
                tuple(Call(i, o, n) for (i, o), n in product.calls.items()),
                us,
                us / record.total_us if record.total_us else 0.0,
                f"{_operation(product)} multiplies with it, no layer does; "
                "write it as a Linear or convolution layer to search it",
            )
        )
    return sites


def _candidates(model: nn.Module) -> list[tuple[tuple[str, ...], nn.Module, Description]]:
    names: dict[int, list[str]] = {}
    modules: dict[int, tuple[nn.Module, Description]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        description = describe(module)
        if description is not None:
            names.setdefault(id(module), []).append(name)
            modules[id(module)] = (module, description)
    return [(tuple(names[key]), *modules[key]) for key in modules]


def _shared_parameters(model: nn.Module) -> set[int]:
    owners: dict[int, set[int]] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners.setdefault(id(parameter), set()).add(id(module))
    return {key for key, modules in owners.items() if len(modules) > 1}


class _Record:
    """What the hooks saw: shapes of the first run, times of all."""

    def __init__(self) -> None:
        self.shapes: dict[int, dict[tuple[tuple[int, ...], tuple[int, ...]], int]] = {}
        self.dtypes: dict[int, str] = {}
        self.times: dict[int, list[float]] = {}
        self.totals: list[float] = []
        self.trouble: dict[int, str] = {}
        self.products: dict[str, Product] = {}

    @property
    def total_us(self) -> float:
        return _median(self.totals) * 1e6

    def calls(self, module: nn.Module) -> tuple[Call, ...]:
        return tuple(Call(i, o, n) for (i, o), n in self.shapes.get(id(module), {}).items())

    def time_us(self, module: nn.Module) -> float:
        return _median(self.times.get(id(module), [])) * 1e6


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else 0.0


def _observe(
    model: nn.Module,
    found: Sequence[tuple[tuple[str, ...], nn.Module, Description]],
    example: Sequence[Any],
    named_example: dict[str, Any],
    repeats: int,
) -> _Record:
    record = _Record()
    modules = [module for _, module, _ in found]
    with evaluating(model), torch.no_grad():
        products = Products(model)
        before, after = _watching(record, products)
        try:
            with _hooked(modules, before, after), products:
                model(*example, **named_example)
                # What is timed of this run begins warm.
                record.shapes.clear()
                products.found.clear()
                model(*example, **named_example)
        except SynoError:
            raise
        except MISFITS as error:
            inputs = (*example, *named_example.values())
            raise ShapeError(f"[sites] {why_not(model, inputs, error)}") from error
        record.products = products.found
        for _ in range(repeats):
            _timed_run(model, modules, example, named_example, record)
    return record


#: What operators compute in, and the dtype that is computed in another one.
_COMPUTED = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def _watching(
    record: _Record, products: Products
) -> tuple[Callable[..., None], Callable[..., None]]:
    """Hooks before and after the call of a listed layer."""

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        products.inside += 1

    def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        products.inside -= 1
        replaced = isinstance(module, (*CONVOLUTIONS, nn.Linear))
        x = args[0] if args else kwargs.get("input")
        y = output
        if not replaced:
            x, y = (next(iter(tensors(value)), None) for value in ((args, kwargs), output))
        if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
            record.trouble[id(module)] = "the example calls it with something that is no tensor"
            return
        if x.dtype not in _COMPUTED:
            record.trouble[id(module)] = (
                f"the example calls it with {x.dtype}; operators compute in float32, float64, bfloat16 "
                "and float16"
            )
        record.dtypes[id(module)] = str(x.dtype).removeprefix("torch.")
        counts = record.shapes.setdefault(id(module), {})
        key = (tuple(x.shape), tuple(y.shape))
        counts[key] = counts.get(key, 0) + 1

    return before, after


def _timed_run(
    model: nn.Module,
    modules: Sequence[nn.Module],
    example: Sequence[Any],
    named_example: dict[str, Any],
    record: _Record,
) -> None:
    wait = waiting(tensors((*example, *named_example.values())))

    def clock() -> float:
        wait()
        return time.perf_counter()

    started: dict[int, float] = {}
    spent: dict[int, float] = {}

    def before(module: nn.Module, *_: Any) -> None:
        started[id(module)] = clock()

    def after(module: nn.Module, *_: Any) -> None:
        key = id(module)
        spent[key] = spent.get(key, 0.0) + clock() - started[key]

    with _hooked(modules, before, after):
        start = clock()
        model(*example, **named_example)
        record.totals.append(clock() - start)
    for key, seconds in spent.items():
        record.times.setdefault(key, []).append(seconds)


@contextmanager
def _hooked(
    modules: Sequence[nn.Module], before: Callable[..., None] | None, after: Callable[..., None]
) -> Iterator[None]:
    handles: list[Any] = []
    try:
        for module in modules:
            if before is not None:
                handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            handles.append(module.register_forward_hook(after, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for the block; each module gets its own mode back, not one for all.

    Args:
        model: the module that is put into evaluation mode with all those in it.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
