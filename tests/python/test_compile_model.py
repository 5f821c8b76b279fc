"""Whole models compiled: what they compute, what is said of them, and what is refused."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import syno
from syno import _core
from syno.errors import ArgumentError, KernelError, ShapeError, UnknownName
from syno.graph import compile as compiling
from syno.graph import reference, stages
from syno.graph.building import Builder
from syno.graph.compile import Compiling, compile_network
from syno.graph.folding import folded
from syno.graph.from_torch import from_module
from syno.kernels import prepack


class Branches(nn.Module):
    """Convolutions with a branch around them, a normalisation, and outputs of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.last = nn.Linear(8, 5)

    def forward(self, x: Tensor, *, scale: float = 1.0) -> dict[str, Tensor]:
        y = torch.relu(self.norm(self.first(x)))
        y = torch.relu(self.second(y) + y)
        return {
            "y": self.last(y.mean((2, 3))) * scale,
            "top": y.flatten(1).topk(3).indices,
            "x": x,
            "flat": y.flatten(1),
        }


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        made: Tensor = self.layer(self.embedding(tokens))
        return made


def _model(make: Any) -> Any:
    torch.manual_seed(0)
    model = make().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)
    return model


def _random_model(seed: int) -> tuple[nn.Module, Tensor]:
    """Layers of many kinds at random; what each may follow depends on the rank of what comes out before it."""
    rng = np.random.default_rng(seed)
    channels, size = int(rng.integers(1, 5)), int(rng.integers(6, 12))
    example = torch.from_numpy(
        rng.standard_normal((int(rng.integers(1, 3)), channels, size, size)).astype(np.float32)
    )
    layers: list[nn.Module] = []
    for _ in range(int(rng.integers(2, 7))):
        kind = int(rng.integers(0, 8))
        wider = int(rng.integers(1, 6)) * channels
        if kind == 0:
            groups = channels if rng.random() < 0.5 else 1
            layers.append(
                nn.Conv2d(
                    channels,
                    wider,
                    3,
                    int(rng.integers(1, 3)),
                    int(rng.integers(1, 3)),
                    groups=groups,
                )
            )
            channels = wider
        elif kind == 1:
            layers.append(nn.BatchNorm2d(channels))
        elif kind == 2:
            layers.append(
                [nn.ReLU(), nn.GELU(), nn.SiLU(), nn.Hardswish(), nn.Tanh()][rng.integers(5)]
            )
        elif kind == 3:
            layers.append(nn.MaxPool2d(2, 1, 1) if rng.random() < 0.5 else nn.AvgPool2d(3, 1, 1))
        elif kind == 4:
            layers.append(nn.Upsample(scale_factor=2) if size < 16 else nn.AdaptiveAvgPool2d(7))
            size *= 2
        elif kind == 5:
            layers.append(nn.GroupNorm(channels, channels))
        elif kind == 6:
            layers.append(nn.Conv2d(channels, channels, 1, bias=False))
        else:
            layers.append(nn.Softmax(1))
    layers += [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, 3)]
    torch.manual_seed(seed)
    model = nn.Sequential(*layers).eval()
    for module in model:
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2)
    return model, example


def _close(ours: Tensor, theirs: Tensor) -> None:
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(12))
def test_random_models_compute_what_pytorch_computes(seed: int) -> None:
    model, example = _random_model(seed)
    fast = syno.compile(model, example)
    with torch.no_grad():
        _close(fast(example), model(example))
        other = torch.randn_like(example)
        _close(fast(other), model(other))


def test_a_model_is_called_as_it_was() -> None:
    model = _model(Branches)
    x = torch.randn(2, 3, 9, 9)
    fast = syno.compile(model, x)
    with torch.no_grad():
        ours, theirs = fast(x), model(x)
    assert list(ours) == list(theirs)
    for name in theirs:
        _close(ours[name], theirs[name])
    assert ours["x"].data_ptr() != x.data_ptr()
    assert list(fast.fallbacks) == ["topk"] and "no row" in fast.fallbacks["topk"]
    assert fast.verify(seed=4) and "verified" in str(fast)
    assert "kernels" in repr(fast) and "<table>" in fast._repr_html_() and "digraph" in fast.dot()
    profile = fast.profile(turns=2)
    assert set(profile.times_us) == {s.name for s in fast.network.stages if s.kind != "view"}
    assert profile.to_dict()["total_us"] > 0


def test_whole_numbers_and_attention() -> None:
    model = _model(Attending)
    tokens = torch.randint(0, 11, (2, 7))
    fast = syno.compile(model, (tokens,))
    with torch.no_grad():
        _close(fast(tokens), model(tokens))
    assert not fast.fallbacks
    with pytest.raises(ShapeError, match="11"):
        fast(torch.full((2, 7), 11))


def test_changed_weights_are_seen() -> None:
    model = _model(Branches)
    x = torch.randn(1, 3, 6, 6)
    fast = syno.compile(model, x)
    with torch.no_grad():
        before = fast(x)["y"]
        model.first.weight.mul_(2)
        model.norm.running_mean.add_(0.5)
        after = fast(x)["y"]
        _close(after, model(x)["y"])
        assert not torch.equal(before, after)
        old = model.last.weight.data
        kept = old.clone()
        model.last.weight.data = torch.randn(5, 8)
        _close(fast(x)["y"], model(x)["y"])
        model.last.weight = nn.Parameter(torch.randn(5, 8))
        _close(fast(x)["y"], model(x)["y"])
        assert torch.equal(old, kept)
        model.last.weight = nn.Parameter(torch.randn(5, 9))
        with pytest.raises(ShapeError, match="compile again"):
            fast(x)


def test_fusion_keeps_what_is_computed_and_saves_steps() -> None:
    model, example = _model(Branches), torch.randn(1, 3, 8, 8)
    fast = syno.compile(model, example)
    apart = syno.compile(model, example, fuse=False)
    assert len(fast.network.stages) < len(apart.network.stages)
    with torch.no_grad():
        _close(fast(example)["y"], apart(example)["y"])


def test_equal_layers_share_a_kernel_that_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Conv2d(6, 6, 3, padding=1), nn.Softmax(1)]
    model = nn.Sequential(*layers).eval()
    checked: list[str] = []
    verify = prepack._core.verify_prepacked

    def counted(once: Any, call: Any, program: Any) -> Any:
        checked.append(str(program.text()))
        return verify(once, call, program)

    class Engine:
        verify_prepacked = staticmethod(counted)

        def __getattr__(self, name: str) -> Any:
            return getattr(_core, name)

    monkeypatch.setattr(prepack, "_core", Engine())
    example = torch.randn(2, 6, 9, 7)
    network, _ = compile_network(
        from_module(model, (example,)).network, settings=Compiling(cache=False)
    )
    convolutions = [stage for stage in network.stages if stage.kernel and stage.kernel.constants]
    assert len(convolutions) == 4
    # The first convolution may be a kernel of its own where the others are joined with what is before them.
    assert len({id(stage.kernel) for stage in convolutions[1:]}) == 1
    assert len({id(stage.packed) for stage in convolutions}) == 4
    assert len(checked) == len(set(checked)) <= 2
    with torch.no_grad():
        _close(network(example), model(example))


def test_what_cannot_be_made_beside_others_is_told_by_its_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise KernelError("[kernel] no")

    monkeypatch.setattr(stages, "prepacked", refuse)
    model = nn.Sequential(nn.Linear(3, 4), nn.Softmax(-1), nn.Linear(4, 5)).eval()
    with pytest.raises(KernelError, match=r"\[graph\] \S+: \[kernel\] no"):
        compile_network(from_module(model, (torch.randn(2, 3),)).network)


def test_what_depends_on_weights_alone_is_computed_once() -> None:
    build = Builder("weights")
    x = build.input("x", (4,))
    w = build.weight("w", np.arange(4, dtype=np.float32), "w")
    doubled = build.formula("y[i] = w[i] * 2", {"w": w})
    network = build.network([build.formula("y[i] = x[i] + d[i]", {"x": x, "d": doubled})])
    parts = folded(network)
    assert len(parts.once.nodes) == 1 and len(parts.call.nodes) == 1
    compiled, again = compile_network(network)
    one = np.ones(4, np.float32)
    assert compiled(one).tolist() == [1, 3, 5, 7]
    compiling.refreshed(compiled, again, {"w": np.ones(4, np.float32)})
    assert compiled(one).tolist() == [3, 3, 3, 3]


def test_outputs_that_are_inputs_weights_and_the_same_twice() -> None:
    build = Builder("odd")
    x = build.input("x", (2, 3))
    w = build.weight("w", np.ones((2, 3), np.float32))
    y = build.formula("y[i,j] = x[i,j] + 1", {"x": x})
    flat = build.formula("y[i] = x[i/3, i%3]", {"x": y}, i=6)
    compiled, _ = compile_network(build.network([y, y, x, w, flat]))
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = compiled(given)
    assert [each.shape for each in made] == [(2, 3)] * 4 + [(6,)]
    for each, wanted in zip(
        made, (given + 1, given + 1, given, np.ones((2, 3)), (given + 1).ravel()), strict=True
    ):
        assert np.array_equal(each, wanted)
    out = [np.empty_like(each) for each in made]
    assert compiled(given, out=out)[0] is out[0] and np.array_equal(out[4], made[4])


def test_a_wrong_network_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    build = Builder("wrong")
    x = build.input("x", (4,))
    network = build.network([build.formula("y[i] = x[i] * 3", {"x": x})])
    real = compiling.run_reference

    def other(*args: Any, **kwargs: Any) -> Any:
        return {name: tensor + 1 for name, tensor in real(*args, **kwargs).items()}

    monkeypatch.setattr(compiling, "run_reference", other)
    with pytest.raises(KernelError, match="WRONG"):
        compile_network(network)
    assert not compile_network(network, settings=Compiling(verify=False))[0].verification


def test_a_failing_function_of_the_host_ends_the_call() -> None:
    build = Builder("host")
    x = build.input("x", (3,))
    told: list[str] = []

    def host(tensor: Tensor) -> Tensor:
        if told:
            raise ValueError("as asked")
        return tensor.flip(0)

    (y,) = build.call("flip", [x], [((3,), "float32")], host=host)
    compiled, _ = compile_network(build.network([build.formula("y[i] = x[i] * 2", {"x": y})]))
    assert compiled(np.array([1, 2, 3], np.float32)).tolist() == [6, 4, 2]
    told.append("fail")
    with pytest.raises(ValueError, match="as asked"):
        compiled(np.zeros(3, np.float32))
    told.clear()
    assert compiled(np.array([1, 2, 3], np.float32)).tolist() == [6, 4, 2]


def test_several_threads_at_once() -> None:
    model, example = _random_model(3)
    fast = syno.compile(model, example)
    inputs = [torch.randn_like(example) for _ in range(4)]
    with torch.no_grad():
        wanted = [model(x) for x in inputs]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            with torch.no_grad():
                if not torch.allclose(fast(inputs[number]), wanted[number], rtol=1e-4, atol=1e-4):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_other_types_strides_and_empty_batches() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.LayerNorm(4)).double().eval()
    x = torch.randn(5, 6, dtype=torch.float64)
    fast = syno.compile(model, x)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x))
        turned = torch.randn(6, 5, dtype=torch.float64).t()
        torch.testing.assert_close(fast(turned), model(turned))
        torch.testing.assert_close(fast(x.numpy()), model(x))
        empty = torch.zeros(0, 6, dtype=torch.float64)
        assert syno.compile(model, empty)(empty).shape == (0, 4)


def test_not_a_number_stays_where_pytorch_has_it() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)).eval()
    x = torch.randn(1, 2, 8, 8)
    x[0, 0, 3, 3] = float("nan")
    x[0, 1, 6, 1] = float("inf")
    fast = syno.compile(model, x)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), equal_nan=True, rtol=1e-4, atol=1e-4)


def test_an_example_of_zeros_is_checked_on_other_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    from syno.graph import compile as compiling

    model = nn.Conv2d(3, 4, 3).eval()
    zeros = torch.zeros(1, 3, 8, 8)
    fast = syno.compile(model, zeros)
    assert fast.network.sample is not None and fast.network.sample.inputs[0].std() > 0.5
    assert 0 < fast.network.verification.max_rel_err < 1e-5
    telling = compiling.telling(fast.network.original, [zeros + 2])
    assert (telling[0] == 2).all(), "an example that says something is what is checked"
    real = compiling.CompiledNetwork.run

    def run(network: object, inputs: object) -> object:  # wrong, and right of zeros
        return [made + 1e-2 * sum(abs(x).sum() for x in inputs) for made in real(network, inputs)]

    monkeypatch.setattr(compiling.CompiledNetwork, "run", run)
    with pytest.raises(KernelError, match="max_rel_err"):
        syno.compile(model, zeros)


def test_derived_kernels_say_so() -> None:
    model = nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()).eval()
    x = torch.randn(1, 32, 28, 28)
    fast = syno.compile(model, x, derive=True, seconds=1.0)
    stage = fast.network.stages[0]
    with torch.no_grad():
        _close(fast(x), model(x))
    assert (stage.derived == "") == (stage.derived_error == 0.0)
    assert not syno.compile(model, x).network.stages[0].derived


def test_bad_input_gets_a_sentence() -> None:
    model = _model(Branches)
    x = torch.randn(1, 3, 6, 6)
    fast = syno.compile(model, x)
    with pytest.raises(ShapeError, match=r"expected float32 \[1, 3, 6, 6\]"):
        fast(x[:, :, :5])
    with pytest.raises(ShapeError, match="float64"):
        fast(x.double())
    with pytest.raises(KernelError, match="gradient"):
        fast(x.clone().requires_grad_())
    with pytest.raises(ArgumentError, match="example"):
        syno.compile(model)
    with pytest.raises(ArgumentError, match="neither"):
        syno.compile(3, x)  # type: ignore[call-overload]
    with pytest.raises(UnknownName, match="Valid: cache"):
        syno.compile(model, x, fast=True)
    with pytest.raises(ArgumentError, match="derive"):
        syno.compile(model, x, derive=1)
    with pytest.raises(ArgumentError, match="leave the example out"):
        syno.compile(syno.Operator.parse("y[i] = x[i]", i=3), x)
    with pytest.raises(ShapeError, match="2 arrays for 1 inputs"):
        fast.network(x, x)
    with pytest.raises(KernelError, match="int64"):
        fast.network(x.long())


def test_an_executable_refuses_what_does_not_fit() -> None:
    with pytest.raises(ShapeError, match="outside"):
        _core.Executable([("host", [("arena", 8)])], 4, 0, lambda *_: None)
    with pytest.raises(ShapeError, match="outside"):
        _core.Executable([("host", [("external", 1)])], 0, 1, lambda *_: None)
    with pytest.raises(ShapeError, match="host's"):
        _core.Executable([("host", [])], 0, 0)
    with pytest.raises(UnknownName, match="arena, external, fixed"):
        _core.Executable([("host", [("heap", 0)])], 0, 0, lambda *_: None)
    with pytest.raises(ShapeError, match="addresses"):
        _core.Executable([], 0, 1).run([], 1)


def test_programs_whose_text_needs_much_memory_are_checked_by_their_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.ConvTranspose2d(8, 6, 2, 2).eval()
    x = torch.randn(1, 8, 10, 10)
    network = from_module(model, x).network
    before = reference.run_reference(network, {network.inputs[0].name: x}, dtype=torch.float64)
    made: list[str] = []
    compiled = syno.Operator.compile

    def noted(operator: Any, *args: Any, **kwargs: Any) -> Any:
        made.append(operator.expr)
        return compiled(operator, *args, **kwargs)

    monkeypatch.setattr(syno.Operator, "compile", noted)
    monkeypatch.setattr(reference, "_MOST_BYTES", 100)
    after = reference.run_reference(network, {network.inputs[0].name: x}, dtype=torch.float64)
    assert made
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4, bias=True)
        self.register_buffer("mask", torch.tensor([True, False, True, True]))

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(self.mask, self.linear(x), 0.0)


def test_what_cannot_be_taken_in_any_more_is_refused() -> None:
    model, x = Masked().eval(), torch.randn(2, 4)
    fast = syno.compile(model, x)
    with torch.no_grad():
        _close(fast(x), model(x))
    model.mask.fill_(True)  # nothing else changes
    with pytest.raises(KernelError, match="mask"):
        fast(x)
    model = Masked().eval()
    fast = syno.compile(model, x)
    model.linear.bias = None
    with pytest.raises(ShapeError, match="compile again"):
        fast(x)


def test_outputs_share_no_memory_with_other_arguments() -> None:
    build = Builder("apart")
    x = build.input("x", (8,))
    twice = build.formula("y[i] = x[7-i] * 2", {"x": x}, i=8)
    compiled, _ = compile_network(build.network([twice, build.formula("y[i] = x[i]", {"x": x})]))
    given = np.arange(8, dtype=np.float32)
    with pytest.raises(ShapeError, match="overlaps"):
        compiled(given, out=[given, np.empty(8, np.float32)])
    both = np.empty(12, np.float32)
    with pytest.raises(ShapeError, match="overlaps"):
        compiled(given, out=[both[:8], both[4:]])
    fixed = np.empty(8, np.float32)
    fixed.flags.writeable = False
    with pytest.raises(KernelError, match="read-only"):
        compiled(given, out=[fixed, np.empty(8, np.float32)])
    assert compiled(given, out=[both[:8], np.empty(8, np.float32)])[0][0] == 14


class Elsewhere:
    """An array that speaks DLPack and nothing else, as another framework's does."""

    def __init__(self, array: np.ndarray, device: int = 1) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **how: Any) -> Any:
        if self.device != 1:
            raise BufferError("it lies on an accelerator")
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


def test_arrays_that_speak_dlpack_are_read_where_they_lie() -> None:
    fast = syno.compile(_model(Branches), torch.randn(1, 3, 6, 6)).network
    x = np.random.default_rng(3).standard_normal((1, 3, 6, 6)).astype(np.float32)
    expected, given = fast(x), Elsewhere(x)
    for ours, theirs in zip(fast(given), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    (held,) = fast.taken([given])
    assert np.shares_memory(held, x), "without a copy"
    with pytest.raises(KernelError, match="accelerator"):
        fast(Elsewhere(x, device=2))
    with pytest.raises(KernelError, match="float64"):
        fast(Elsewhere(x.astype(np.float64)))


class Drawing(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x * torch.rand_like(x), x + 1


def test_random_numbers_are_drawn_in_every_call_and_compared_with_nothing() -> None:
    x = torch.ones(64)
    fast = syno.compile(Drawing(), x)
    assert fast.network.verification and fast.network.verification.output != "mul"
    first, second = fast(x), fast(x)
    assert not torch.equal(first[0], second[0]) and torch.equal(first[1], x + 1)


def test_what_training_counts_beside_is_no_part_of_the_network() -> None:
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    x = torch.randn(2, 2, 6, 6)
    fast = syno.compile(model, x)
    model.train()(x)  # the normalisation counts this batch
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("assigned", [False, True])
def test_a_table_that_became_part_of_programs_is_watched(assigned: bool) -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("order", torch.tensor([2, 0, 1]))

        def forward(self, x: Tensor) -> Tensor:
            return 2 * x[:, self.order]

    model, x = Table().eval(), torch.randn(2, 3)
    fast = syno.compile(model, x)
    torch.testing.assert_close(fast(x), model(x))
    if assigned:
        model.order = torch.tensor([0, 1, 2])
    else:
        model.order.copy_(torch.tensor([0, 1, 2]))  # type: ignore[operator]
    with pytest.raises(KernelError, match="order"):
        fast(x)


def test_parameters_of_another_type_are_refused() -> None:
    model, x = nn.Linear(3, 2).eval(), torch.randn(2, 3)
    fast = syno.compile(model, x)
    model.double()
    with pytest.raises(ShapeError, match="float64"):
        fast(x)


class Choosing(nn.Module):
    """Reads and returns truth values."""

    def forward(self, x: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
        return torch.where(keep, x, -x), torch.logical_and(keep, x > 0)


def test_truth_values_of_a_caller_are_read() -> None:
    x, keep = torch.tensor([[1.0, -2.0], [3.0, -4.0]]), torch.tensor([[True], [False]])
    for ours, theirs in zip(
        syno.compile(Choosing(), (x, keep))(x, keep), Choosing()(x, keep), strict=True
    ):
        assert torch.equal(ours, theirs) and ours.dtype == theirs.dtype


def test_models_made_in_inference_mode_are_compiled() -> None:
    with torch.inference_mode():
        model, x = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).eval(), torch.randn(2, 3)
        fast = syno.compile(model, x)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-5, atol=1e-6)
        model[0].weight.mul_(2.0)
        fast.renew(everything=True)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-5, atol=1e-6)


def test_parameters_that_went_elsewhere_are_refused() -> None:
    model, x = nn.Linear(3, 2).eval(), torch.randn(2, 3)
    fast = syno.compile(model, x)
    model.to("meta")
    with pytest.raises(ShapeError, match="weight"):
        fast(x)
