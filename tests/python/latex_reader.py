"""Reads the LaTeX of programs as their text form, so that what it says can be computed and compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

_TOKEN = re.compile(
    r"\\left\\lfloor|\\right\\rfloor|\\left\\lceil|\\right\\rceil|\\left.|\\right.|\\begin\{\w+\}|\\end\{\w+\}|\\operatorname\{\w+\}|\\math(?:rm|tt)\{[^}]*\}"
    r"|\\text\{[^}]*\}|\\\\|\\[a-zA-Z]+|\d+|[a-zA-Z]|\S"
)
_INFIX = {
    r"\cdot": "*",
    r"\bmod": "%",
    r"\wedge": "and",
    r"\vee": "or",
    r"\le": "<=",
    r"\ne": "!=",
    "=": "==",
}
_CALLS = {
    r"\exp": "exp",
    r"\ln": "log",
    r"\tanh": "tanh",
    r"\sin": "sin",
    r"\cos": "cos",
    r"\arctan": "atan",
    r"\max": "max",
    r"\min": "min",
}
_REDUCTIONS = {r"\sum": "sum", r"\prod": "prod", r"\max": "max", r"\min": "min"}


def _plain(word: str) -> str:
    return re.sub(r"\\math\w+\{(.*)\}", r"\1", word).replace(r"\_", "_")


class LatexReader:
    """`LatexReader(latex, ranges).text()` is a text that `Program.parse` reads; `ranges` are those of iterators that the
    LaTeX leaves out, a scope each, `names` what may stand in it."""

    def __init__(
        self, latex: str, ranges: Sequence[Mapping[str, str]], names: Iterable[str]
    ) -> None:
        body = re.sub(r"\\(begin|end)\{aligned\}", "", latex).strip()
        self._lines = re.sub(r" &(?==|\\mathrel)", " ", body).split(" \\\\\n")
        self._all_ranges = ranges
        self._ranges: Mapping[str, str] = {}
        as_they_are = re.findall(r"\\mathtt\{(.*?)\}", latex.replace(r"\_", "_"))
        self._known = set(names) - set(as_they_are)
        self._tokens: list[str] = []
        self._at = 0
        self._in_index = False

    def text(self) -> str:
        lines = []
        # Constants are given in the text form.
        scopes = [line for line in self._lines if not re.match(r"[^\s\[]+ = \\left\(", line)]
        for line, ranges in zip(scopes, self._all_ranges, strict=True):
            self._ranges = ranges
            self._tokens, self._at = _TOKEN.findall(line), 0
            lines.append(self._statement())
        return "\n".join(lines)

    def _statement(self) -> str:
        name, at = self._name(), self._indices()
        if self._next(r"\mathrel"):
            self._take("{", "+", "}", "=")
            return f"{name}{at} += {self._until()}"
        self._take("=")
        indices = [one.strip() for one in at[1:-1].split(",") if one.strip()]
        return f"{name}[{', '.join(map(self._ranged, indices))}] = {self._until()}"

    def _ranged(self, text: str) -> str:
        bounded = re.fullmatch(r"(.*)<=(.*)<(.*)", text)
        if bounded is not None:
            begin, name, end = (part.strip() for part in bounded.groups())
            return f"{name}: {begin}..{end}"
        return f"{text.strip()}: {self._ranges[text.strip()]}"

    # Tokens

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._at += 1
        return True

    def _take(self, *tokens: str) -> None:
        for token in tokens:
            assert self._next(token), (token, self._tokens[self._at :])

    def _pop(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    # Names and indices

    def _name(self) -> str:
        name = _plain(self._pop())
        if self._peek() == "_" and self._tokens[self._at + 1] == "{":
            if self._tokens[self._at + 2].startswith(r"\text"):
                return name
            self._take("_", "{")
            index = _plain(self._pop())
            self._take("}")
            (name,) = self._known & {name + index, f"{name}_{index}"}
        return name

    def _indices(self) -> str:
        self._take("[")
        before, self._in_index = self._in_index, True
        text = self._until("]")
        self._in_index = before
        return f"[{text}]"

    def _until(self, *ends: str) -> str:
        parts: list[str] = []
        while self._peek() and self._peek() not in ends:
            part = self._part(parts)
            if parts and re.fullmatch(r"\d+", parts[-1]) and re.match(r"[\w(]", part):
                parts.append("*")  # 2 i
            parts.append(part)
        if ends:
            self._at += 1
        return " ".join(parts)

    # Parts of a sum

    def _part(self, before: list[str]) -> str:
        token = self._peek()
        if token in _INFIX:
            return _INFIX[self._pop()]
        if token in _REDUCTIONS and self._tokens[self._at + 1] == "_":
            return self._reduction(_REDUCTIONS[self._pop()])
        if token in _CALLS:
            self._at += 1
            return _CALLS[token] + self._group()
        if token.startswith(r"\operatorname"):
            name = self._pop()[len(r"\operatorname{") : -1]
            return self._reduction(name) if self._peek() == "_" else name + self._group()
        if token == r"\left(":
            return self._group()
        if token == r"\left[":
            self._at += 1
            return "(" + self._until(r"\right]") + ")"
        if token == r"\left|":
            self._at += 1
            return "abs(" + self._until(r"\right|") + ")"
        if token == r"\left\lfloor":
            self._at += 1
            inside = self._until(r"\right\rfloor")
            if self._in_index:
                return f"({inside})"
            # A quotient of indices alone is one; of what is read, the function.
            return f"floor({inside})" if "[" in inside else f"index({inside})"
        if token == r"\left\lceil":
            self._at += 1
            inside = self._until(r"\right\rceil")
            return f"ceil({inside})"
        if token == r"\frac":
            self._take(r"\frac", "{")
            above = self._until("}")
            self._take("{")
            return f"(({above}) / ({self._until('}')}))"
        if token == r"\sqrt":
            self._take(r"\sqrt", "{")
            return f"sqrt({self._until('}')})"
        if token == "{":
            self._at += 1
            base = self._until("}")
            self._take("^", "{")
            return f"(({base}) ** ({self._until('}')}))"
        if token == r"\begin{cases}":
            self._at += 1
            yes = self._until("&")
            assert self._pop() == r"\text{if }"
            condition = self._until("\\\\")
            no = self._until("&")
            self._take(r"\text{else}", r"\end{cases}")
            return f"select({condition}, {yes}, {no})"
        if token == r"\infty":
            self._at += 1
            return "inf"
        if re.match(r"[a-zA-Z]|\\math", token):
            return self._read_or_iterator()
        return self._pop()

    def _group(self) -> str:
        self._take(r"\left(")
        return "(" + self._until(r"\right)") + ")"

    def _reduction(self, word: str) -> str:
        self._take("_", "{")
        before, self._in_index = self._in_index, True
        over = [self._ranged(one) for one in self._until("}").split(",")]
        self._in_index = before
        return f"{word}[{', '.join(over)}]"

    def _read_or_iterator(self) -> str:
        name = self._name()
        if self._peek() != "[":
            return name
        text = name + self._indices()
        if self._peek() == "_":
            self._take("_", "{")
            assert self._pop() == r"\text{outside: }"
            text += f" fill {self._until('}')}"
        return text
