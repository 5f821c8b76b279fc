"""Products of matrices and tensors, named and defined as in `torch`."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from syno.errors import ShapeError
from syno.graph.building import Builder, NotCovered, Value
from syno.graph.functions.formulas import (
    Number,
    Tensors,
    axes,
    broadcast,
    float_of,
    is_truth,
    reading,
    sizes_of,
)


def linear(build: Builder, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """The last dimension of `x` times `weight` (out, in), plus `bias` (out)."""
    given = [x, weight] if bias is None else [x, weight, bias]
    tensors = Tensors(build, float_of(build, given))
    if not x.rank or weight.rank > 2 or not weight.rank or x.shape[-1] != weight.shape[-1]:
        raise ShapeError(f"[graph] linear of {list(x.shape)} with a weight {list(weight.shape)}")
    rows = axes(x.rank - 1)
    left = f"{tensors.key('x', x)}[{','.join([*rows, 'k'])}]"
    key = tensors.key("w", weight)
    out = ["o"] if weight.rank == 2 else []
    right = f"{key}[{','.join([*out, 'k'])}]"
    body = f"sum[k] {left} * {right}"
    if bias is not None:
        body += (
            f" + {tensors.key('b', bias)}[{'o' if bias.rank and out else '0' if bias.rank else ''}]"
        )
    return build.formula(f"y[{','.join([*rows, *out])}] = {body}", tensors.by_key, name="linear")


def matmul(build: Builder, x: Value, y: Value) -> Value:
    """As `torch.matmul` and `numpy.matmul`: vectors, matrices, and batches of them, which broadcast."""
    return _matmul(build, x, y, name="matmul")


def mm(build: Builder, x: Value, y: Value) -> Value:
    return _matmul(build, x, y, name="mm")


def bmm(build: Builder, x: Value, y: Value) -> Value:
    return _matmul(build, x, y, name="bmm")


def mv(build: Builder, x: Value, y: Value) -> Value:
    return _matmul(build, x, y, name="mv")


def dot(build: Builder, x: Value, y: Value) -> Value:
    return _matmul(build, x, y, name="dot")


def outer(build: Builder, x: Value, y: Value) -> Value:
    tensors = Tensors(build, float_of(build, [x, y]))
    left, right = tensors.key("x", x), tensors.key("w", y)
    return build.formula(f"y[i,j] = {left}[i] * {right}[j]", tensors.by_key, name="outer")


def addmm(
    build: Builder, bias: Value, x: Value, y: Value, beta: Number = 1, alpha: Number = 1
) -> Value:
    """beta * bias + alpha * x @ y; nothing of `bias` where beta is 0."""
    return _matmul(build, x, y, bias, alpha, beta, name="addmm")


def addmv(
    build: Builder, bias: Value, x: Value, y: Value, beta: Number = 1, alpha: Number = 1
) -> Value:
    return _matmul(build, x, y, bias, alpha, beta, name="addmv")


def baddbmm(
    build: Builder, bias: Value, x: Value, y: Value, beta: Number = 1, alpha: Number = 1
) -> Value:
    return _matmul(build, x, y, bias, alpha, beta, name="baddbmm")


def _matmul(
    build: Builder,
    x: Value,
    y: Value,
    bias: Value | None = None,
    alpha: Number = 1,
    beta: Number = 1,
    *,
    name: str,
) -> Value:
    bias = None if beta == 0 else bias
    tensors = Tensors(build, float_of(build, [x, y] if bias is None else [x, y, bias]))
    inner = (x.shape[-1:], y.shape[-2:-1] if y.rank > 1 else y.shape)
    if not x.rank or not y.rank or inner[0] != inner[1]:
        raise ShapeError(f"[graph] the product of {list(x.shape)} and {list(y.shape)}")
    batch = broadcast([x.shape[:-2], y.shape[:-2]])
    names = axes(len(batch), "b")
    rows, columns = ["m"] if x.rank > 1 else [], ["n"] if y.rank > 1 else []
    left = _inner(tensors.key("x", x), x.shape[:-2], names, batch, [*rows, "k"])
    right = _inner(tensors.key("w", y), y.shape[:-2], names, batch, ["k", *columns])
    body = f"(sum[k] {left} * {right})"
    if alpha != 1:
        body = f"{tensors.number(alpha)} * {body}"
    iterators = [*names, *rows, *columns]
    extents = [*batch, *x.shape[-2:-1], *(y.shape[-1:] if y.rank > 1 else ())]
    if bias is not None:
        read = reading(tensors.key("bias", bias), bias.shape, iterators, extents)
        body += f" + {read}" if beta == 1 else f" + {tensors.number(beta)} * {read}"
    return build.formula(
        f"y[{','.join(iterators)}] = {body}",
        tensors.by_key,
        name=name,
        **sizes_of(iterators, extents),
    )


def _inner(
    key: str, batch: Sequence[int], names: Sequence[str], whole: Sequence[int], last: list[str]
) -> str:
    outer = reading(key, batch, names, whole)[len(key) + 1 : -1]
    return f"{key}[{','.join([outer, *last] if outer else last)}]"


def einsum(build: Builder, equation: str, operands: Sequence[Value]) -> Value:
    """As `torch.einsum`: repeated letters, sums over letters, an ellipsis, extents of 1 that broadcast.

    Operands are multiplied from left to right.
    """
    tensors = Tensors(build, float_of(build, operands))
    terms, result = _letters(equation, operands)
    extents: dict[str, int] = {}
    for term, operand in zip(terms, operands, strict=True):
        for letter, extent in zip(term, operand.shape, strict=True):
            known = extents.setdefault(letter, extent)
            if known != extent and 1 not in (known, extent):
                raise ShapeError(
                    f"[graph] einsum {equation!r}: {letter} is both {known} and {extent}"
                )
            extents[letter] = max(known, extent)
    reads, letters = [], []
    for number, (term, operand) in enumerate(zip(terms, operands, strict=True)):
        at = [
            "0" if n == 1 and extents[a] != 1 else a
            for a, n in zip(term, operand.shape, strict=True)
        ]
        reads.append(f"{tensors.key(f'x{number}', operand)}[{','.join(at)}]")
        letters.append({a for a in at if a != "0"})
    statements: list[str] = []

    def stage(body: str, own: set[str], wanted: set[str], last: bool) -> tuple[str, set[str]]:
        summed = sorted(own - wanted)
        body = f"sum[{','.join(summed)}] {body}" if summed else body
        if last:
            statements.append(f"y[{','.join(result)}] = {body}")
            return "y", wanted
        if not summed and "*" not in body:
            return body, own
        left = sorted(own & wanted)
        read = f"t{len(statements)}[{','.join(left)}]"
        statements.append(f"{read} = {body}")
        return read, set(left)

    for number in range(len(reads)):
        others = set(result).union(*(have for n, have in enumerate(letters) if n != number))
        alone = len(reads) == 1
        reads[number], letters[number] = stage(reads[number], letters[number], others, alone)
    while len(reads) > 1:
        own = letters[0] | letters[1]
        wanted = set(result).union(*letters[2:]) & own if len(reads) > 2 else set(result)
        read, have = stage(f"{reads[0]} * {reads[1]}", own, wanted, len(reads) == 2)
        reads[:2], letters[:2] = [read], [have]
    return build.formula(
        "; ".join(statements),
        tensors.by_key,
        name="einsum",
        **sizes_of(list(extents), list(extents.values())),
    )


def _letters(equation: str, operands: Sequence[Value]) -> tuple[list[list[str]], list[str]]:
    """Iterators of each operand and of the result."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if not re.fullmatch(r"[A-Za-z.,]*", left) or not re.fullmatch(r"[A-Za-z.]*", right):
        raise NotCovered(f"[graph] einsum of {equation!r}")
    if len(parts) != len(operands):
        raise ShapeError(f"[graph] einsum {equation!r} of {len(operands)} tensors")
    widest = 0
    for part, operand in zip(parts, operands, strict=True):
        spare = operand.rank - len(part.replace("...", ""))
        if spare < 0 or (spare and "..." not in part):
            raise ShapeError(f"[graph] einsum {equation!r} of a tensor {list(operand.shape)}")
        widest = max(widest, spare)
    dots = [f"e{d}" for d in range(widest)]

    def spread(part: str, rank: int) -> list[str]:
        before, found, after = part.partition("...")
        spare = rank - len(before) - len(after)
        ellipsis = dots[widest - spare :] if found and spare else []
        return [f"i_{a}" for a in before] + ellipsis + [f"i_{a}" for a in after]

    terms = [spread(part, operand.rank) for part, operand in zip(parts, operands, strict=True)]
    if arrow:
        result = spread(right, widest + len(right.replace("...", "")))
    else:
        count: dict[str, int] = {}
        for part in parts:
            for a in part.replace(".", ""):
                count[a] = count.get(a, 0) + 1
        result = dots + [f"i_{a}" for a in sorted(count) if count[a] == 1]
    known = {a for term in terms for a in term}
    if len(set(result)) != len(result) or not set(result) <= known:
        raise ShapeError(
            f"[graph] einsum {equation!r}: a letter of the result is there twice, or of no operand"
        )
    return terms, result


class _Scores:
    """The texts that attention and its gradient have in common: what each pair of a query and a key is worth."""

    def __init__(
        self,
        build: Builder,
        query: Value,
        key: Value,
        value: Value,
        attn_mask: Value | None,
        dropout_p: float,
        is_causal: bool,
        scale: float | None,
        enable_gqa: bool,
    ) -> None:
        if dropout_p:
            raise NotCovered("[graph] attention with dropout")
        if min(query.rank, key.rank, value.rank) < 2:
            raise ShapeError("[graph] attention takes tensors of two dimensions or more")
        self.tensors = tensors = Tensors(build, float_of(build, [query, key, value]))
        outer = [query.shape[:-2], key.shape[:-2], value.shape[:-2]]
        if enable_gqa:
            heads = query.shape[-3]
            for each in (1, 2):
                if heads % outer[each][-1]:
                    raise ShapeError(
                        f"[graph] {heads} heads of queries for {outer[each][-1]} of keys"
                    )
            outer = [query.shape[:-2], *((*shape[:-1], heads) for shape in outer[1:])]
        self.batch = broadcast(outer)
        self.names = names = axes(len(self.batch), "b")
        self.shared_heads = enable_gqa
        self.whole = (*self.batch, query.shape[-2], key.shape[-2])
        self.at, self.row = ",".join([*names, "l", "t"]), ",".join([*names, "l"])
        self.masked = attn_mask is not None
        self.scale = tensors.number(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
        products = (
            f"(sum[e] {self.read('q', query, ['l', 'e'])} * {self.read('k', key, ['t', 'e'])})"
        )
        self.text = f"{products} * {self.scale}"
        if attn_mask is not None:
            at = [*names, "l", "t"]
            mask = reading(tensors.key("mask", attn_mask), attn_mask.shape, at, self.whole)
            truth = is_truth(attn_mask)
            self.text = (
                f"select({mask} != 0, {self.text}, -inf)" if truth else f"{self.text} + {mask}"
            )
        if is_causal:
            self.text = f"select(index(t) <= index(l), {self.text}, -inf)"

    def read(self, word: str, of: Value, last: list[str]) -> str:
        names, batch = self.names, self.batch
        text = _inner(self.tensors.key(word, of), of.shape[:-2], names, batch, last)
        if self.shared_heads and word != "q" and of.shape[-3] != batch[-1] and of.shape[-3] != 1:
            shared = f"{names[-1]}/{batch[-1] // of.shape[-3]}"
            text = text.replace(f"[{names[-1]},", f"[{shared},").replace(
                f",{names[-1]},", f",{shared},"
            )
        return text

    def sizes(self) -> dict[str, Any]:
        return sizes_of([*self.names, "l", "t"], self.whole)


def scaled_dot_product_attention(
    build: Builder,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """softmax(query keyᵀ scale + mask) value, over the last two dimensions of each.

    What attends to nothing gives 0. With `enable_gqa` several heads (dimension -3) of the query share one of the keys.
    """
    scores = _Scores(build, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    text = _attention(scores, value)
    return build.formula(text, scores.tensors.by_key, name="attention", **scores.sizes())


def _attention(scores: _Scores, value: Value) -> str:
    at, row = scores.at, scores.row
    power = f"exp(scores[{at}] - greatest[{row}])"
    share = f"powers[{at}] / total[{row}]"
    if scores.masked:
        power = f"select(scores[{at}] == -inf, 0, {power})"
        share = f"select(total[{row}] == 0, 0, {share})"
    seen = scores.read("v", value, ["t", "v"])
    return (
        f"scores[{at}] = {scores.text}; greatest[{row}] = max[t] scores[{at}]; powers[{at}] = {power}; "
        f"total[{row}] = sum[t] powers[{at}]; share[{at}] = {share}; "
        f"y[{row},v] = sum[t] share[{at}] * {seen}"
    )


def attention_with_logarithms(
    build: Builder,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Value, Value]:
    """`scaled_dot_product_attention`, and of each row of scores log(sum(exp(scores))), for the derivative."""
    scores = _Scores(build, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    text = (
        f"{_attention(scores, value)}; "
        f"logarithms[{scores.row}] = log(total[{scores.row}]) + greatest[{scores.row}]; return y, logarithms"
    )
    made = build.formulas(text, scores.tensors.by_key, name="attention", **scores.sizes())
    return made[0], made[1]


def attention_gradients(
    build: Builder,
    gradient: Value,
    query: Value,
    key: Value,
    value: Value,
    result: Value,
    logarithms: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[Value, ...]:
    """The gradients of `attention_with_logarithms`' first result in query, key and value.

    Raises:
        NotCovered: their batches differ.
    """
    if len({query.shape[:-2], key.shape[:-2], value.shape[:-2]}) > 1:
        raise NotCovered("[graph] the derivative of attention whose batches differ")
    scores = _Scores(build, query, key, value, attn_mask, dropout_p, is_causal, scale, False)
    at, row, names = scores.at, scores.row, scores.names
    column = ",".join([*names, "t"])

    def read(word: str, of: Value, last: list[str]) -> str:
        return scores.read(word, of, last)

    g, seen = read("g", gradient, ["l", "v"]), read("v", value, ["t", "v"])
    logarithm = f"{scores.tensors.key('logarithms', logarithms)}[{row}]"
    text = (
        f"scores[{at}] = {scores.text}; "
        f"share[{at}] = select(scores[{at}] == -inf, 0, exp(scores[{at}] - {logarithm})); "
        f"whole[{row}] = sum[v] {g} * {read('y', result, ['l', 'v'])}; "
        f"part[{at}] = sum[v] {g} * {seen}; "
        f"ds[{at}] = share[{at}] * (part[{at}] - whole[{row}]) * {scores.scale}; "
        f"dq[{row},e] = sum[t] ds[{at}] * {read('k', key, ['t', 'e'])}; "
        f"dk[{column},e] = sum[l] ds[{at}] * {read('q', query, ['l', 'e'])}; "
        f"dv[{column},v] = sum[l] share[{at}] * {g}; return dq, dk, dv"
    )
    return build.formulas(text, scores.tensors.by_key, name="gradient", **scores.sizes())
