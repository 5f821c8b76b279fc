"""The formula language in words: the one text behind `help(Operator.parse)`, `syno help expressions` and
`docs/expressions.md`. Every example in it is run by a test."""

from __future__ import annotations

TEXT = """\
# The formula language

An operator is written as one formula, or as several statements that use each other's results:

```
y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]
```

Names before brackets are tensors, names inside are *iterators*, counted from 0. Each element of `y` is what the right side
gives at its place. Iterators on the left side, and in the brackets of a reduction, are bound; every other name is a number.

```python
>>> from syno.operators.operator import Operator
>>> op = Operator.parse("y[i,j] = sum[k] a[i,k] * b[k,j]", i=2, j=4, k=3)
>>> op.shapes
{'a': (2, 3), 'b': (3, 4), 'y': (2, 4)}

```

## Sizes and shapes

Extents are given by name (`i=2`), or follow from `shapes={"a": (2, 3)}`. An iterator that alone indexes a dimension runs
over all of it. Otherwise a dimension reaches as far as its indices do: its extent is the greatest index + 1. Where the
least index is -p, the tensor counts as padded by p on both sides, and its extent is p less:

```python
>>> Operator.parse("y[h] = sum[r] x[2*h+r-1] * k[r]", h=8, r=3).shapes["x"]
(15,)
>>> Operator.parse("y[h] = sum[r] x[2*h+r-1] * k[r]", shapes={"x": (16,)}, r=3).shapes["y"]
(8,)

```

A read outside a tensor is worth 0, or what `fill` says: `x[h+r-1] fill -inf` for a maximum. A range may be stated in the
text, `y[h: 1..15]` or `sum[r: 3]`: then it may be a part of a dimension. The first input is data and the others are weights,
unless `weights=[...]` or `data=[...]` names them.

## Reductions

| written | is |
|---|---|
| `sum[k] a[i,k] * b[k,j]` | the sum |
| `max[r,s] x[2*h+r, 2*w+s]` | the greatest value; a NaN stays one |
| `min[k] x[i,k]` | the least value; a NaN stays one |
| `prod[k] x[i,k]` | the product |
| `mean[k] x[i,k]` | the sum over the number of terms |

A reduction takes the product on its right, not the sum: `sum[k] a[k] * b[k] + c[i]` adds `c[i]` once. To reduce a sum, put it
in parentheses. A reduction may stand anywhere in an expression:

```python
>>> softmax = Operator.parse("y[i,j] = exp(x[i,j]) / sum[k] exp(x[i,k])", i=2, j=5, k=5)
>>> nearest = Operator.parse("y[i,j] = min[k] (a[i,k] + b[k,j])", i=2, j=2, k=3)

```

A name that nothing binds is an error where an iterator is at home, so that a forgotten reduction is not computed as
something else:

```python
>>> Operator.parse("y[i,j] = a[i,k] * b[k,j]", i=3, j=3, k=3)
Traceback (most recent call last):
...
syno._core.ParseError: [parse] 'k' is bound by no reduction here: did you mean `sum[k] ...`, or k on the left side? ...

```

## Numbers

`2`, `0.5`, `1e-5`, `inf` and `ratio(1, 3)` are exact. A name with a given value is its number where it can be nothing
else: a factor of an iterator (`x[s*h+r]`), a divisor (`x[c/g]`, `x[i % n]`), a bound of a range, a quotient of numbers beside an
iterator (`x[h+r-(k/2)]`), or a number in a body (`x[i] / n`). Everywhere else `size(k)` says that the number is meant:

```python
>>> Operator.parse("y[i] = x[i+size(k)]", i=4, k=2).shapes["x"]
(6,)
>>> Operator.parse("y[i] = (sum[k] x[i,k]) / size(k)", i=4, k=2).reference([[1.0, 3.0]] * 4)
array([2., 2., 2., 2.])

```

A `size` statement declares symbolic sizes instead: `size N, C; size k : coefficient; y[n: N] = ...`.

## Indices

Indices are integers: `+`, `-`, `*` by a number, `/` (rounded down) and `%` by a number, parentheses. `inside(e, n)` is `e`, and
the read takes its fill where `e` is not in 0 … n-1.

| operator | written | sizes |
|---|---|---|
| stride 2, dilation 2 | `y[n,o,h,w] = sum[c,r,s] x[n,c,2*h+2*r-2,2*w+2*s-2] * k[o,c,r,s]` | `n=1 o=2 c=3 h=4 w=4 r=3 s=3` |
| two groups of 4 channels | `y[n,o,h,w] = sum[c,r,s] x[n,c+o/8*4,h+r-1,w+s-1] * k[o,c,r,s]` | `n=1 o=16 c=4 h=4 w=4 r=3 s=3` |
| pixel shuffle | `y[n,c,h,w] = x[n, c*4 + h%2*2 + w%2, h/2, w/2]` | `n=1 c=3 h=4 w=4` |
| shift around | `y[i] = x[(i+1) % n]` | `i=5 n=5` |
| window of odd size k | `y[h] = sum[r] x[h+r-(k/2)] * w[r]` | `h=6 r=3 k=3` |

## Bodies

`+ - * / **`, comparisons (`< <= == != > >=`, worth 0 or 1), `and`, `or`. An iterator is a number where it stands alone, `x[i] * i`;
`index(i % 4)` makes one of any index. Functions:

| written | is |
|---|---|
| `select(x[i] > 0, x[i], 0.1 * x[i])` | the second where the first is not 0, else the third |
| `exp(x[i])` `log(x[i])` `sqrt(x[i])` `rsqrt(x[i])` | rsqrt is 1 / sqrt |
| `sin(x[i])` `cos(x[i])` `atan(x[i])` | in radians |
| `floor(x[i])` `ceil(x[i])` `trunc(x[i])` `round(x[i])` | halves round to the even number |
| `fmod(x[i], 3)` | what a division leaves, exactly; of the first one's sign |
| `erf(x[i])` `tanh(x[i])` `sigmoid(x[i])` `gelu(x[i])` | gelu by erf, not by tanh |
| `relu(x[i])` `abs(x[i])` `neg(x[i])` | |
| `max(x[i], 0)` `min(x[i], 1)` `maximum(x[i], 0)` `minimum(x[i], 1)` | of two values; a NaN stays one |
| `pow(x[i], 3)` `x[i] ** 0.5` | as C's pow |

## Several statements

One a line, or separated by `;`. `#` begins a comment; a line that ends or begins with an operator goes on. A result is read
like an input; the last one is returned, or those that `return` names:

```python
>>> op = Operator.parse('''
... t[n,c] = mean[h,w] x[n,c,h,w]   # squeeze
... s[n,c] = sigmoid(sum[d] t[n,d] * k[c,d])
... y[n,c,h,w] = x[n,c,h,w] * s[n,c]
... return y, s
... ''', n=1, c=4, h=2, w=2)
>>> op.outputs
['y', 's']

```

`+=` adds to an element as often as an iterator of the left side leads to it: a scatter, the reverse of a read. Elements that
nothing reaches are 0:

```python
>>> Operator.parse("y[h + r] += x[h] * w[r]", h=4, r=3).shapes["y"]
(6,)

```

Inputs can be declared with their roles and extents, as the full form does that programs print: `input x[4, 8]`,
`weight k[8]`, `constant t[2] = {1, 1/2}`.

```python
>>> op = Operator.parse("input x[4]; constant t[2] = {1, 1/2}; y[i: 2] = sum[j: 4] x[j] * t[i]")
>>> op.reference([1.0, 2.0, 3.0, 4.0])
array([10.,  5.])

```
"""


def summary() -> str:
    """The text as the terminal and `help()` show it: without the marks of code blocks."""
    return "\n".join(line for line in TEXT.splitlines() if not line.startswith("```"))
