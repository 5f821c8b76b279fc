"""
The engine of syno: tensor programs, pGraphs, synthesis, schedules and native kernels.
"""
from __future__ import annotations
import collections.abc
import numpy
import numpy.typing
import typing
import typing_extensions
__all__: list[str] = ['CacheTraffic', 'Candidate', 'CompileReport', 'ConstructSketch', 'Constructed', 'ContentDigest', 'Cost', 'Cpu', 'Derivation', 'DerivationSearch', 'EinnetSearch', 'EnumerationResult', 'Executable', 'FormatError', 'GpuModel', 'Graph', 'GraphNode', 'GraphSite', 'Kernel', 'KernelError', 'LoopCode', 'LoopNest', 'MOST_STEPS', 'MachineModel', 'MeasureOptions', 'Measured', 'MemoryLevel', 'Merging', 'NativeLibrary', 'PGraph', 'ParseError', 'Prediction', 'Program', 'Propagation', 'RewriteSite', 'Schedule', 'ScheduleError', 'ScheduleSpace', 'ScopeQuestion', 'ShapeError', 'Spec', 'SpecError', 'SynoError', 'TensorCalls', 'Tlb', 'Tree', 'TritonKernel', 'TritonText', 'UnknownName', 'Verification', 'VerifyError', 'address_of', 'adopt_cache_entry', 'allowed', 'apply_prepacked', 'apply_schedule', 'build_id', 'cache_entry_key', 'compare_schedules', 'compile_nest', 'constant_bytes', 'construct_schedule', 'construction_policies', 'conv', 'conv_transposed', 'cpu_named', 'decisions', 'default_schedule', 'derivation', 'describe_machine', 'einnet_step', 'elementwise', 'emit_c', 'emit_graphviz', 'emit_latex', 'emit_pytorch', 'emit_te', 'emit_triton', 'enumerate_operators', 'explain', 'extension_names', 'feature_names', 'fold_constants', 'fuses_growing', 'g2bmm', 'graph_rewrite', 'graph_rows', 'graph_sites', 'guessed_seconds', 'hash_bytes', 'host_cpu', 'laid_out', 'lay_out_decision', 'layer_norm', 'live_ends', 'llvm_version', 'matmul', 'measure_machine', 'measure_schedules', 'merge_dims', 'mergeable', 'moves_with', 'named_operator', 'named_operators', 'nest_features', 'part_digests', 'plan_memory', 'pool', 'predict_nest', 'rewrite', 'rewrite_rows', 'rewrite_sites', 'roughness', 'rules', 'run_on_openmp', 'sample_operators', 'search_derivations', 'search_einnet', 'set_cache_secret', 'simulate_caches', 'slides', 'softmax', 'source_digest', 'spec_named', 'spec_names', 'sums_of_products', 'trace_mutations', 'verify_at_sizes', 'verify_elsewhere', 'verify_prepacked', 'warm_workspace', 'why_empty', 'with_live_ends', 'without_copies']
class SynoError(RuntimeError):
    pass
class ShapeError(SynoError):
    pass
class ParseError(SynoError):
    pass
class VerifyError(SynoError):
    pass
class SpecError(SynoError):
    pass
class ScheduleError(SynoError):
    pass
class KernelError(SynoError):
    pass
class FormatError(SynoError):
    pass
class UnknownName(SynoError):
    pass
class Cost:
    """
        What a program costs at one valuation.
    
        ``flops`` counts a multiply-add as one; ``params`` is the number of weight elements; ``bytes`` is compulsory
        traffic, every tensor once for each scope that touches it, 4 bytes an element.
    """
    def __repr__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    @property
    def bytes(self) -> int:
        """
        Compulsory traffic in bytes, 4 bytes an element.
        """
    @property
    def flops(self) -> int:
        """
        Multiply-adds, and one for each other scalar function.
        """
    @property
    def params(self) -> int:
        """
        Elements of all weights.
        """
class Program:
    """
        A tensor program: a DAG of tensor expressions (EINNET's scopes, §3). Immutable.
    
        Example:
            >>> from syno._core import Program
            >>> p = Program.parse("y[m,n] = sum[k] a[m,k] * b[k,n]", shapes={"a": [2, 3], "b": [3, 4]})
            >>> p.shape("y"), p.cost().flops
            ([2, 4], 24)
    """
    @staticmethod
    def parse(text: str, *, sizes: collections.abc.Mapping[str, typing.SupportsInt | typing.SupportsIndex] = {}, shapes: collections.abc.Mapping[str, collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]] = {}, weights: collections.abc.Sequence[str] | None = None, data: collections.abc.Sequence[str] | None = None) -> Program:
        """
            Parse the text form, short or full.
        
            One statement a line or separated by ``;``. An iterator that alone indexes a dimension runs over it. An input
            dimension whose least index is -p counts as padded by p on both sides (extent = greatest index + 1 - p), otherwise
            its extent is greatest index + 1. Reads outside a tensor give their fill, 0 unless ``x[...] fill -inf`` says else.
            A reduction ``sum[k]`` (also max, min, prod, mean) takes the product on its right.
        
            Args:
                text: such as ``y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]``.
                sizes: extents of iterators, or values of sizes, by name. Those that follow from shapes may be left out.
                shapes: shapes of inputs by name; they override the padding rule.
                weights: names of the inputs that are weights; the rest is data. ``[]`` for none.
                data: names of the data inputs; the rest are weights. With neither, every input but the first one read is a weight.
            Returns:
                The program, verified; ``verify()`` says which shapes were assumed.
            Raises:
                ParseError: the text is not well formed; the message points at the place.
                ShapeError: sizes are missing or contradict each other.
                UnknownName: an option names nothing in the text.
                VerifyError: the program breaks an invariant.
            Example:
                >>> from syno._core import Program
                >>> p = Program.parse("y[n,o,h] = sum[c,r] x[n,c,2*h+r-1] * k[o,c,r]", sizes=dict(n=1, o=8, c=4, h=16, r=3))
                >>> print(p.verify(), end="")
                input x [1, 4, 31]
                weight k [8, 4, 3]
                output y [1, 8, 16]
        """
    def __copy__(self) -> Program:
        ...
    def __deepcopy__(self, memo: dict) -> Program:
        ...
    def __eq__(self, arg0: Program) -> bool:
        ...
    def __hash__(self) -> int:
        ...
    def __repr__(self) -> str:
        ...
    def __str__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    def at(self, i: typing.SupportsInt | typing.SupportsIndex) -> Program:
        """
            The concrete program at a valuation: every size an integer, every index simplified.
        
            Args:
                i: place of the valuation, from 0.
            Raises:
                ShapeError: there is no such valuation.
        """
    def cost(self, i: typing.SupportsInt | typing.SupportsIndex = 0) -> Cost:
        """
            Exact cost at valuation ``i``.
        
            Returns:
                ``Cost(flops, params, bytes)``; flops counts one multiply-add as one.
            Raises:
                ShapeError: there is no such valuation, or a number does not fit 64 bits.
        """
    def derivative(self, name: str, *, in_two_steps: bool = True) -> Program:
        """
            The vector-Jacobian product with respect to an input, as a program.
        
            Its inputs are those of this program that it needs and a cotangent ``d<output>`` for each output; its output is
            ``d<name>``.
        
            Args:
                name: of the input.
                in_two_steps: sums whose index maps tangle terms and elements become two of plain indices, which mostly are
                    faster.
            Raises:
                VerifyError: the program is not differentiable there.
                UnknownName: ``name`` is not an input.
        """
    def derivatives(self, names: collections.abc.Sequence[str], *, in_two_steps: bool = True) -> Program:
        """
            The vector-Jacobian products with respect to several inputs, as one program that computes what they have in common
            once.
        
            Its inputs are as for ``derivative``; its outputs are ``d<name>`` for each name, in order.
        
            Args:
                names: of the inputs, each once.
                in_two_steps: as for ``derivative``.
            Raises:
                ShapeError: there are no names, or one is there twice.
                VerifyError, UnknownName: as ``derivative``.
        """
    def heaviest(self, share: typing.SupportsFloat | typing.SupportsIndex) -> list[str]:
        """
            The scopes with much of the work, most first, by their outputs.
        
            Args:
                share: least part of the points of all iteration spaces, 0 to 1.
        """
    def interpret(self, inputs: dict) -> dict:
        """
            Run the reference interpreter in float64: slow, the meaning of the program.
        
            Args:
                inputs: arrays by name, one for each of ``inputs``, of exactly its shape; converted to float64.
            Returns:
                Every output by name, float64, C-contiguous.
            Raises:
                ShapeError: an input is missing or of another shape, or the program is symbolic (choose a valuation with ``at``).
                UnknownName: an array for no input of the program.
            Example:
                >>> from syno._core import Program
                >>> p = Program.parse("y[i] = sum[j] x[i,j]", shapes={"x": [2, 2]})
                >>> p.interpret({"x": [[1, 2], [3, 4]]})["y"].tolist()
                [3.0, 7.0]
        """
    def interpret_exact(self, inputs: dict) -> dict:
        """
            Run the reference interpreter in exact fractions.
        
            Args:
                inputs: arrays or nested lists of integers, fractions or (exactly converted) floats, by name.
            Returns:
                Every output by name, as an object array of ``fractions.Fraction``; infinities as floats.
            Raises:
                VerifyError: a function of the program is not rational, or a value is undefined, such as 1/0.
                ShapeError: as ``interpret``, or a fraction does not fit 64 bits.
        """
    def interpret_points(self, inputs: dict, output: str, points: collections.abc.Sequence[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]]) -> tuple:
        """
            Single elements of one output, computing only what they need.
        
            Args:
                inputs: as for ``interpret``.
                output: name of an output.
                points: index tuples, one number a dimension.
            Returns:
                ``(values, absolute_terms)``, float64 arrays; ``absolute_terms`` is the sum of the absolute values of the terms
                that make each element, the scale of its rounding error.
            Raises:
                ShapeError, UnknownName: as ``interpret``; also a point outside the output.
        """
    def linear_rows(self, values: dict, output: str, input: str, points: collections.abc.Sequence[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]]) -> list:
        """
            Rows of the matrix that the program is, where an output is linear in an input: of which elements of the input single
            elements of the output are sums, and how much of each. Computes only what these elements are made of.
        
            Args:
                values: arrays or nested lists, of all inputs but that one, by name.
                output: name of an output.
                input: name of the input.
                points: index tuples of the output, one number a dimension.
            Returns:
                For each point ``(offsets, values)``: row-major places in the input, int64, ascending, of what differs from
                zero, and it, float64.
            Raises:
                VerifyError: the output is not linear in the input; names the function or reduction.
                ShapeError, UnknownName: as ``interpret_points``.
        
            Example:
                >>> from syno._core import Program
                >>> p = Program.parse("y[i] = sum[j] x[i+j] * w[j]", shapes={"x": [4], "w": [2]})
                >>> [(offsets, values)] = p.linear_rows({"w": [3, 5]}, "y", "x", [(1,)])
                >>> offsets.tolist(), values.tolist()
                ([1, 2], [3.0, 5.0])
        """
    def loops(self) -> str:
        """
        The program as nested loops, for people: one nest a scope, in order.
        """
    def neutral(self, core: str | None = None) -> tuple[Program, dict[str, str], Program | None]:
        """
            The same computation under names that say nothing: two programs that differ by the names of tensors alone have one.
        
            Args:
                core: output of the scope that shall be the core; default the one with most points.
            Returns:
                ``(program, names, core)``: the names that were given, by the neutral ones, and the scope with most points as a program
                of its own, which programs with other scopes around it share; None where it cannot stand alone.
            Raises:
                ShapeError: the program is symbolic.
                UnknownName: no scope writes `core`.
            Example:
                >>> from syno._core import Program
                >>> p = Program.parse("q[m,n] = sum[k] v[m,k] * w[k,n]; z[m,n] = relu(q[m,n])", sizes={"m": 2, "n": 3, "k": 4})
                >>> print(p.neutral()[0].short_text())
                core[m,n] = sum[k] a0[m,k] * a1[k,n]
                t0[m,n] = relu(core[m,n])
        """
    def one_scope_form(self) -> Program:
        """
        The program with producers substituted into consumers, one scope an output (EINNET's fusion).
        """
    def operator_key(self, unordered: collections.abc.Sequence[tuple[str, typing.SupportsInt | typing.SupportsIndex]] = []) -> str:
        """
            Key of the operator the program computes, 32 hexadecimal digits, the same on every machine.
        
            Two operators are the same when, at every valuation, their one-scope forms have the same terms up to a permutation of
            each weight's elements and of unordered channels.
        
            Args:
                unordered: ``(tensor, dimension)`` pairs whose channels may be permuted.
            Raises:
                UnknownName, ShapeError: a pair names no dimension of the program.
        """
    def renamed(self, names: collections.abc.Mapping[str, str]) -> Program:
        """
            The same computation with other names for some tensors; one that is in their way gets a number behind its name.
        
            Args:
                names: new names by the tensors' present ones.
            Raises:
                UnknownName: there is no such tensor.
                ShapeError: two tensors would have one name, or text cannot hold it.
        """
    def role(self, name: str) -> str:
        """
            Role of a tensor: ``"input"``, ``"weight"``, ``"constant"`` or ``"computed"``.
        
            Args:
                name: of the tensor, as the text form has it.
            Raises:
                UnknownName: there is no tensor of this name.
        """
    def shape(self, name: str, valuation: typing.SupportsInt | typing.SupportsIndex | None = None) -> list[int]:
        """
            Extents of a tensor, as integers.
        
            Args:
                name: of any tensor of the program.
                valuation: position in ``valuations``; only a symbolic program needs it.
            Raises:
                ShapeError: the program is symbolic and no valuation is given, or there is no such valuation.
                UnknownName: there is no tensor of this name.
        """
    def short_text(self) -> str:
        """
        The text form for people, without ranges and shapes.
        """
    def structural_key(self) -> str:
        """
            Key of the program as it stands, 32 hexadecimal digits, the same on every machine.
        
            Equal up to names, order of commuting terms and equal index expressions.
        """
    def symbolic_shape(self, name: str) -> list[str]:
        """
            Extents of a tensor as sizes: ``["N", "C_in", "2*H"]``; numbers in a concrete program.
        
            Args:
                name: of the tensor, as the text form has it.
            Raises:
                ShapeError: a dimension does not start at 0, or its extent is no single size.
                UnknownName: there is no tensor of this name.
        """
    def text(self) -> str:
        """
        The full text form: every range, shape, role and fill. ``Program.parse(p.text())`` is the same program.
        """
    def verify(self) -> str:
        """
            Check every invariant and describe the shapes.
        
            Returns:
                One line a tensor: role, name, shape (at every valuation).
            Raises:
                VerifyError: names the scope, the tensor and the index that are wrong.
        """
    def with_least_offsets(self) -> Program:
        """
            The same computation of other places of inputs of the same shapes: indices of each dimension are less by the least of
            them, where each is sure to be inside; in the last dimension by multiples of 16. It takes as long.
        
            Raises:
                ShapeError: the program is symbolic.
            Example:
                >>> from syno._core import Program
                >>> p = Program.parse("y[j] = x[7,j] + x[9,j+20]", sizes={"j": 4}, shapes={"x": [12, 32]})
                >>> p.with_least_offsets()
                Program("y[j] = x[0,j] + x[2,j+20]")
        """
    def with_permuted(self, name: str, order: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> Program:
        """
            The same computation of an input, or to an output, whose dimensions are kept in another order.
        
            Args:
                name: of the input or the output.
                order: dimension ``d`` of the new tensor is dimension ``order[d]`` of this one's: what is passed, or got, is
                    ``x.transpose(order)``.
            Raises:
                UnknownName: no input or output is named ``name``.
                ShapeError: ``order`` is no permutation of its dimensions.
            Example:
                >>> from syno._core import Program
                >>> p = Program.parse("y[n,c] = relu(x[n,c])", sizes={"n": 2, "c": 3})
                >>> p.with_permuted("x", [1, 0])
                Program("y[n,c] = relu(x[c,n])")
                >>> p.with_permuted("y", [1, 0])
                Program("y[c,n] = relu(x[n,c])")
        """
    def with_valuations(self, valuations: collections.abc.Sequence[collections.abc.Mapping[str, typing.SupportsInt | typing.SupportsIndex]]) -> Program:
        """
            The same symbolic program at other valuations, such as another batch.
        
            Args:
                valuations: a value >= 1 for every size variable, one dictionary a valuation.
            Raises:
                ShapeError: a variable has no value or one below 1.
                VerifyError: a size of the program is not an integer there.
                UnknownName: no such variable.
        """
    def without_empty(self, three: Program) -> Program:
        """
            What is left where some extents are 0. Programs have no empty ranges, so such a one is given twice: this is the
            program with 2 in the place of each.
        
            Tensors without elements are gone, from the inputs too; a sum over nothing is 0, a product 1, a mean not a number;
            what is read of an empty tensor is the fill.
        
            Args:
                three: the same with 3 in the place of each.
            Raises:
                ShapeError: an output is empty itself, a maximum or minimum is over nothing, or an index depends on the extents.
            Example:
                >>> from syno._core import Program
                >>> text = "y[i] = z[i] + sum[k] a[i,k]"
                >>> two, three = (Program.parse(text, sizes={"i": 4, "k": k}) for k in (2, 3))
                >>> two.without_empty(three).shape("y")
                [4]
        """
    @property
    def coefficients(self) -> list[str]:
        """
        Names of the coefficient variables.
        """
    @property
    def concrete(self) -> bool:
        """
        Whether no size is symbolic.
        """
    @property
    def inputs(self) -> list[str]:
        """
        Names of the data inputs and weights, in the order kernels take them.
        """
    @property
    def outputs(self) -> list[str]:
        """
        Names of the outputs, in order.
        """
    @property
    def tensors(self) -> list[str]:
        """
        Names of all tensors.
        """
    @property
    def valuation_count(self) -> int:
        """
        Number of valuations of the sizes; 1 for a concrete program.
        """
    @property
    def valuations(self) -> list[dict[str, int]]:
        """
        Value of every size variable by name, one dictionary a valuation.
        """
class PGraph:
    """
        An operator as a pGraph: steps from the output's coordinates to the input's (Syno, section 5).
    
        A value: equal when its text is equal. Picklable never; carry it as text.
    """
    @staticmethod
    def parse(text: str) -> PGraph:
        """
            Read the text that :meth:`text` writes.
        
            Raises:
                ParseError: the text is malformed, naming the line; or a step is illegal, with the reason.
                VerifyError: the last line does not assign the frontier to the input.
        """
    def __eq__(self, arg0: PGraph) -> bool:
        ...
    def __hash__(self) -> int:
        ...
    def __repr__(self) -> str:
        ...
    def _repr_svg_(self) -> str:
        ...
    def hash(self) -> str:
        """
            32 hexadecimal digits, the same on every machine. Equal for pGraphs that differ only in the order of
            commuting steps, of weights, or of Reduces of one extent. Finer than :meth:`operator_key`.
        """
    @typing.overload
    def one_scope(self) -> Program:
        """
        The operator as a tensor program of one scope ``y = sum x * w1 * ...``, symbolic over its sizes.
        """
    @typing.overload
    def one_scope(self) -> Program:
        """
            The operator as one tensor expression, symbolic over the sizes of its signature.
        
            Returns:
                A program ``y[...] = sum[...] x[...] * w1[...] * ...``; weights have the role ``"weight"`` and are named in
                the order of the pGraph's contractions.
            Source:
                Syno, Table 1: the coordinates of the output, pushed through the primitives, index input and weights.
        """
    def operator_key(self) -> str:
        """
            32 hexadecimal digits, equal for equal operators: those that compute the same up to a permutation of each
            weight's elements and of the dimensions the signature leaves unordered, however they are built.
        """
    @typing.overload
    def staged(self) -> Program:
        """
        The operator as the tensor program of least FLOPs: materialised reduction (Syno, section 8).
        """
    @typing.overload
    def staged(self, *, max_stages: typing.SupportsInt | typing.SupportsIndex = 200000) -> Program:
        """
            The operator in stages with the least FLOPs: the same function as ``one_scope()``.
        
            The order of contractions, where each reduction is materialised, and which weights are multiplied with each other
            first are searched for the least FLOPs summed over all valuations; ties go to the fewest bytes of intermediates.
        
            Args:
                max_stages: the search is exhaustive up to this many candidate stages, and along one greedy order beyond.
            Returns:
                A program with intermediates ``t1, t2, ...`` (and ``v1, ...`` for products of weights).
            Source:
                Materialised reduction, Syno §8.
        """
    def text(self) -> str:
        """
        The whole pGraph as text, signature included; ``parse(text())`` is equal to this.
        """
    def to_graphviz(self) -> str:
        """
        The same drawing in Graphviz's dot language.
        """
    def to_svg(self) -> str:
        """
        A self-contained SVG drawing: output at the bottom, weights at the side, edges labelled by size.
        """
    @property
    def signature(self) -> dict:
        """
            ``{"output": [...], "input": [...], "fixed": [...], "further": [...]}``; each dimension has ``name``, ``extent``
            and ``unordered``, each further data input ``dims`` and ``fixed``.
        """
    @property
    def steps(self) -> list[str]:
        """
        One line for each step, as in :meth:`text`.
        """
    @property
    def weight_count(self) -> int:
        ...
class Spec:
    """
        What to synthesise: signature, occurrence limits, budgets, thresholds, extensions, disabled rules.
    
        FLOPs (one multiply-add counts as one), parameters and bytes are summed over all valuations.
    """
    __hash__: typing.ClassVar[None] = None
    @staticmethod
    def from_json(text: str) -> Spec:
        """
            Read a spec, strictly.
        
            The keys are those that :meth:`to_json` writes. ``further_inputs`` (none unless given, at most 3) names data
            inputs beside the first, such as the keys of an attention: a list of ``{"dims": [...], "fixed": [...]}``, each as
            for ``input``. Each is read once and whole, in the order of its dimensions, at coordinates that one Contraction
            gives it. The first input is the one whose coordinates go on being transformed after that: put first what
            windows slide over.
        
            Args:
                text: a JSON object.
            Raises:
                FormatError: a key is unknown or a value has the wrong type, with the path of the value.
                SpecError: the spec contradicts itself, with the values and what would work.
                UnknownName: an extension or rule that does not exist.
        """
    def __eq__(self, arg0: Spec) -> bool:
        ...
    def __repr__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    def to_json(self) -> str:
        """
        The spec as JSON that :meth:`from_json` reads; every field is written.
        """
    @property
    def max_steps(self) -> int:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def valuation_count(self) -> int:
        ...
class EnumerationResult:
    """
    Operators that a search found, and what it looked at.
    """
    def __len__(self) -> int:
        ...
    def __repr__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    @property
    def flops(self) -> typing.Any:
        """
        Multiply-adds of each operator's best stage plan, summed over the valuations.
        """
    @property
    def operators(self) -> list[PGraph]:
        """
        The operators as PGraphs, each once.
        """
    @property
    def params(self) -> typing.Any:
        """
        Elements of each operator's weights, summed over the valuations.
        """
    @property
    def stats(self) -> dict:
        """
            ``operators, by_steps, children`` (steps looked at), ``states`` (partial operators kept), ``finished`` (operators met,
            duplicates included), ``rejected`` (counts by rule, budget, ``distance`` and ``order``), ``seconds``, ``truncated``.
        """
    @property
    def steps(self) -> typing.Any:
        """
        Steps of each operator.
        """
class Tree:
    """
        Monte Carlo tree search over a spec's operators (Syno, section 7.2), asked and told in batches.
    
        Nodes have two levels (primitive, then step), children appear by progressive widening in the order of RAVE,
        UCB1-tuned chooses. Rewards lie in [0, 1]; a failed candidate is told 0. They fold in the order of tickets, so
        that the same seed, batch sizes and rewards give the same search, however many workers evaluate.
    
        Args:
            spec: whose operators are searched.
            seed: of all that is drawn.
            exploration: factor of the width of UCB1-tuned's bound.
            widening: exponent of a node's visits to which as many children are looked at.
            rave_random: share of new children that are drawn at random, not by RAVE.
    """
    @staticmethod
    def from_json(spec: Spec, text: str) -> Tree:
        """
            A search that goes on exactly as the one that was written.
        
            Args:
                spec: of that search.
                text: what ``to_json`` gave.
            Raises:
                FormatError: the text is damaged or of another version.
                SpecError: the tree was grown for another spec.
        """
    def __init__(self, spec: Spec, *, seed: typing.SupportsInt | typing.SupportsIndex, exploration: typing.SupportsFloat | typing.SupportsIndex = 1.0, widening: typing.SupportsFloat | typing.SupportsIndex = 0.8, rave_random: typing.SupportsFloat | typing.SupportsIndex = 0.3) -> None:
        ...
    def ask(self, k: typing.SupportsInt | typing.SupportsIndex) -> list[tuple[int, PGraph]]:
        """
            Up to ``k`` pairs ``(ticket, PGraph)`` of operators never handed out before; fewer when the space is exhausted.
        """
    def pending(self) -> list[tuple[int, PGraph]]:
        """
        Pairs ``(ticket, PGraph)`` handed out and not yet told.
        """
    def results(self) -> list[tuple[int, PGraph, float]]:
        """
        Triples ``(ticket, PGraph, reward)`` told so far, in the order of tickets.
        """
    def tell(self, ticket: typing.SupportsInt | typing.SupportsIndex, reward: typing.SupportsFloat | typing.SupportsIndex) -> None:
        """
            Give a ticket's reward. Order does not matter: rewards take effect in the order of tickets.
        
            Args:
                ticket: a number that ``ask`` gave.
                reward: from 0 to 1; 0 for what failed.
            Raises:
                SpecError: the ticket was never handed out or told before, or the reward is outside [0, 1].
        """
    def to_json(self) -> str:
        """
        The whole search as JSON; :meth:`from_json` continues it exactly.
        """
    @property
    def node_count(self) -> int:
        ...
class Schedule:
    """
        A trace of decisions that turns a program into a loop nest (design, levels 7-9). Immutable.
    
        Example:
            >>> from syno._core import Program, default_schedule
            >>> p = Program.parse("y[m,n] = sum[k] a[m,k] * b[k,n]", sizes={"m": 8, "n": 8, "k": 8})
            >>> schedule = default_schedule(p)
            >>> Schedule.parse(schedule.text()) == schedule
            True
    """
    __hash__: typing.ClassVar[None] = None
    @staticmethod
    def from_json(text: str) -> Schedule:
        """
            Read the JSON form.
        
            Args:
                text: what ``to_json`` gives.
            Raises:
                FormatError: says the path of what is wrong, or that the file is newer than this syno.
        """
    @staticmethod
    def parse(text: str) -> Schedule:
        """
            Parse the text form, one decision a line.
        
            Args:
                text: ``schedule f32`` and then lines such as ``split y loops=h numbers=8``.
            Raises:
                ParseError: names the line.
        """
    def __eq__(self, arg0: Schedule) -> bool:
        ...
    def __init__(self, *, dtype: str = 'float32') -> None:
        """
            The empty trace: plain loops.
        
            Args:
                dtype: of the arguments: "float32", "float64" or "bfloat16" (which computes in float32).
            Raises:
                UnknownName: another dtype.
        """
    def __len__(self) -> int:
        ...
    def __repr__(self) -> str:
        ...
    def __str__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    def add(self, name: str, scope: str, *, loops: collections.abc.Sequence[str] = [], numbers: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [], tensor: str = '', words: collections.abc.Sequence[str] = []) -> Schedule:
        """
            This schedule with one more decision; what it means is checked when it is applied.
        
            Args:
                name: one of ``decisions()``.
                scope: the output tensor of the scope it is about.
                loops: names of the loops it is about.
                numbers: factors, extents or cuts.
                tensor: another tensor that it is about, where the decision has one.
                words: what the decision chooses between, where it has such a choice.
            Returns:
                A new schedule.
        """
    def text(self) -> str:
        """
        The text form; ``parse`` reads it back.
        """
    def to_json(self) -> str:
        """
        The JSON form, as text; ``from_json`` reads it back.
        """
    @property
    def dtype(self) -> str:
        """
        Of the arguments: 'float32', 'float64' or 'bfloat16'.
        """
class LoopNest:
    """
        Explicit loops, buffers and register tiles: what a schedule makes of a program, and what is compiled. Immutable.
    """
    @staticmethod
    def parse(text: str) -> LoopNest:
        """
            Parse the text form.
        
            Args:
                text: what ``text()`` gives; from `#` to the end of a line is a comment.
            Raises:
                ParseError: names the line.
        """
    def __repr__(self) -> str:
        ...
    def __str__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    def interpret(self, inputs: dict, parameters: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = []) -> dict:
        """
            Run the nest one iteration after the other in float64: the second oracle. Slow.
        
            Args:
                inputs: an array for every input buffer, by name.
                parameters: the value of each.
            Returns:
                A new float64 array for every output buffer, by name.
            Raises:
                ShapeError: an input is missing or of another shape, or a parameter is outside of its range.
        """
    def specialised(self, parameters: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> LoopNest:
        """
            The nest for one value of each parameter: without parameters.
        
            Args:
                parameters: their values, in the order in which the nest declares them.
            Raises:
                ShapeError: a value is outside of its range, or there are too few or too many.
        """
    def text(self) -> str:
        """
        The text form; ``parse`` reads it back.
        """
    def verify(self) -> None:
        """
            Check that indices stay inside their buffers, that nothing unwritten is read and that parallel iterations do not
            meet.
        
            Raises:
                ScheduleError: names the loop, the buffer and the index.
        """
    @property
    def arguments(self) -> list[str]:
        """
        Names of the arguments in call order: inputs, then outputs.
        """
    @property
    def name(self) -> str:
        """
        The kernel's symbol.
        """
    @property
    def parameters(self) -> list[tuple[str, int, int]]:
        """
        (name, least, greatest) of each size that a call brings along.
        """
class Cpu:
    """
    The CPU code is generated for: name, exact features, vector width, caches.
    """
    def __repr__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    @property
    def enabled(self) -> list[str]:
        """
        Instruction sets that code for it may use, in LLVM's names.
        """
    @property
    def features(self) -> str:
        ...
    @property
    def l1_bytes(self) -> int:
        ...
    @property
    def l2_bytes(self) -> int:
        ...
    @property
    def l3_bytes(self) -> int:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def runs_here(self) -> bool:
        """
        Whether kernels for it can be called in this process.
        """
    @property
    def scalable_bits(self) -> int:
        """
        Width of the SVE registers that code for it needs, exactly; 0 where it needs none.
        """
    @property
    def threads(self) -> int:
        ...
    @property
    def triple(self) -> str:
        ...
    @property
    def vector_bits(self) -> int:
        ...
    @property
    def vector_registers(self) -> int:
        ...
class LoopCode:
    """
    Instructions of one innermost loop of machine code.
    """
    def __repr__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    @property
    def instructions(self) -> int:
        ...
    @property
    def loads(self) -> int:
        """
        That read memory, whatever else they do.
        """
    @property
    def multiply_adds(self) -> int:
        """
        Fused ones.
        """
    @property
    def reloads(self) -> int:
        """
        Of the loads: taken from there.
        """
    @property
    def spills(self) -> int:
        """
        Of the stores: vector registers put on the stack.
        """
    @property
    def stores(self) -> int:
        """
        That only write it.
        """
class CompileReport:
    """
    What one compilation took and gave; milliseconds and bytes.
    """
    def __repr__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    @property
    def build_ms(self) -> float:
        ...
    @property
    def code_bytes(self) -> int:
        ...
    @property
    def codegen_ms(self) -> float:
        ...
    @property
    def from_cache(self) -> bool:
        ...
    @property
    def hot_spills(self) -> float:
        """
        Of the spills, those of an iteration of the deepest loop; one a loop further out counts a 32nd.
        """
    @property
    def link_ms(self) -> float:
        ...
    @property
    def spills(self) -> int:
        ...
class Verification:
    """
    A kernel against the interpreter; true when it passed.
    """
    def __bool__(self) -> bool:
        ...
    def __repr__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    @property
    def detail(self) -> str:
        ...
    @property
    def limit(self) -> float:
        ...
    @property
    def max_rel_err(self) -> float:
        ...
    @property
    def passed(self) -> bool:
        ...
    @property
    def points(self) -> int:
        ...
class Kernel:
    """
        Machine code of one loop nest. Thread-safe.
    
        Calls take anything with the buffer protocol or ``__dlpack__`` (NumPy arrays, torch tensors on the CPU) in place,
        with any strides: other strides than the nest's compile a variant of the kernel, once.
    """
    def __call__(self, *args, out: typing.Any = None, num_threads: typing.SupportsInt | typing.SupportsIndex | None = None) -> typing.Any:
        """
            Computes the outputs.
        
            Args:
                arrays: the inputs in the nest's order, of its shapes and dtypes; bfloat16 as torch tensors, as
                    ml_dtypes.bfloat16, or as their bits in uint16.
                out: an array (or a sequence of them, one an output) to write into, of any strides; default new ones.
                num_threads: threads of syno's own pool; default 1. The result does not depend on it.
            Returns:
                The output, or a tuple of them; torch tensors when the first input is one, else NumPy arrays (of bits where
                it is one of bits).
            Raises:
                ShapeError: the count or a shape differs; an output shares memory with another argument or with itself.
                KernelError: another dtype or device, or memory that cannot be read or written in place.
        """
    def assembly(self) -> str:
        """
        The machine code as text.
        """
    def at(self, parameters: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]) -> Kernel:
        """
            This code for one value of each parameter of its nest: a kernel that can be called, without compiling anything.
        
            Raises:
                ShapeError: a value is outside of its range, or there are too few or too many.
        """
    def call_pointers(self, pointers: collections.abc.Sequence, threads: typing.SupportsInt | typing.SupportsIndex = 1) -> None:
        """
        One call on addresses of arrays with the nest's strides, inputs then outputs; nothing is checked.
        """
    def for_arrays(self, *args, out: typing.Any = None) -> Kernel:
        """
            The kernel for arrays with these strides: this one, or a variant that is compiled when first asked for.
        
            Args:
                arrays, out: as for a call.
            Raises:
                ShapeError, KernelError: as for a call.
        """
    def llvm(self) -> str:
        """
        The LLVM IR as text.
        """
    def loops(self) -> str:
        """
        The loop nest as text.
        """
    def object_bytes(self) -> bytes:
        """
        The ELF object; linking it needs no LLVM.
        """
    def verify(self, program: Program, seed: typing.SupportsInt | typing.SupportsIndex = 0, random_points: typing.SupportsInt | typing.SupportsIndex = 256) -> Verification:
        """
            Compares with the program's interpreter on random inputs: all corners of every output, both sides of each tail and
            border region of the nest, and random points.
        
            Args:
                program: what the kernel should compute.
                seed: of the inputs and the random points.
                random_points: of them, at least; fewer only where each adds up very many terms.
            Raises:
                KernelError: the program's inputs and outputs are not the kernel's.
        """
    def viewed(self, shapes: collections.abc.Sequence[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]]) -> Kernel:
        """
            This code on row-major arrays of other shapes, each of as many elements as before, in call order.
        
            Raises:
                ShapeError: another number of shapes, or of elements.
        """
    @property
    def arguments(self) -> list[tuple[str, bool, list[int]]]:
        """
        (name, whether it is written, shape) of each argument, in call order.
        """
    @property
    def cpu(self) -> Cpu:
        """
        The CPU it was compiled for.
        """
    @property
    def digest(self) -> str:
        """
        Of the key and the object itself, by the cache's secret: 64 hexadecimal digits; empty where compiled fresh.
        """
    @property
    def dtypes(self) -> list[str]:
        """
        The dtype of each argument, in call order.
        """
    @property
    def innermost_loops(self) -> list[LoopCode]:
        """
        What the innermost loops of the machine code are made of, in its order.
        """
    @property
    def key(self) -> str:
        """
        Of the object cache: 32 hexadecimal digits.
        """
    @property
    def nest(self) -> LoopNest:
        """
        The loop nest.
        """
    @property
    def report(self) -> CompileReport:
        ...
    @property
    def symbol(self) -> str:
        """
        The kernel's function in the object.
        """
    @property
    def workspace_bytes(self) -> tuple[int, int]:
        """
        (shared, for each thread): memory a caller of the bare object provides.
        """
class ContentDigest:
    """
        A digest of very many bytes, some at a time, that nobody finds a second content for (BLAKE3).
    """
    def __init__(self) -> None:
        ...
    def digits(self) -> str:
        """
        Of everything so far: 64 hexadecimal digits.
        """
    def update(self, bytes: typing_extensions.Buffer) -> None:
        """
            Further bytes, those of any contiguous buffer.
        
            Args:
                bytes: ``bytes``, a ``bytearray``, or a ``memoryview`` of one.
            Raises:
                ShapeError: not contiguous, or no bytes.
        """
class TensorCalls:
    """
        Kernels of one operator, called on torch tensors of known strides as fast as they can be from Python.
    """
    def __call__(self, tensors: tuple) -> typing.Any:
        """
            The result for a tuple of CPU tensors, a tuple where there are several; None where no kernel was added for them or
            one has other strides.
        """
    def __init__(self, empty: typing.Any, thread_count: typing.Any, *, kept: typing.SupportsInt | typing.SupportsIndex = 64) -> None:
        """
            Args:
                empty: makes the result: ``torch.empty``.
                thread_count: says how many threads a call is for: ``torch.get_num_threads``.
                kept: how many kernels are held; a further one takes the place of one that was found rarely.
            Raises:
                KernelError: kept is 0.
        """
    def __len__(self) -> int:
        """
        How many kernels are held.
        """
    def add(self, kernels: collections.abc.Sequence[Kernel], *, shapes: collections.abc.Sequence[tuple], dtypes: collections.abc.Sequence[typing.Any], result_dtype: typing.Any, result_shapes: collections.abc.Sequence[tuple], orders: collections.abc.Sequence[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]], threads: typing.SupportsInt | typing.SupportsIndex, runs_on: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [], strides: collections.abc.Sequence[typing.Any] = [], result_formats: collections.abc.Sequence[typing.Any] = []) -> None:
        """
            Serve calls on tensors of these shapes and dtypes while ``thread_count`` says ``threads``.
        
            Args:
                kernels: one after the other each writes the next of the results.
                runs_on: threads that each kernel gets; default ``threads``.
                result_shapes: of each result, as torch sees it.
                orders: of each kernel, which of a call's tensors are its inputs, in its order.
                strides: of each tensor of a call; None where it has to be contiguous. Default all are.
                result_formats: memory format of each result, as its kernel writes it; None: contiguous. Default all are.
            Raises:
                ShapeError: a kernel takes another number of arguments.
        """
    def clear(self) -> None:
        """
        Lets all kernels go.
        """
    @property
    def used(self) -> int:
        """
        When it was last called, counted in calls of all there are; 0: never.
        """
class GpuModel:
    """
        What a GPU computes a second and what its memories give. Immutable.
    
        Tiles of Triton kernels are chosen from it alone, so that text can be written for a GPU that is not here.
    """
    @staticmethod
    def from_json(text: str) -> GpuModel:
        """
            Read a GPU file.
        
            Raises:
                FormatError: names the path of what is missing, unknown, of another type or impossible.
        """
    def __eq__(self, arg0: GpuModel) -> bool:
        ...
    def __hash__(self) -> int:
        ...
    def __repr__(self) -> str:
        ...
    def __str__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    def to_json(self) -> str:
        """
        The GPU file, as text; ``from_json`` reads it back.
        """
    @property
    def fp32_tflops(self) -> float:
        """
        1e12 operations a second; a multiply-add is two.
        """
    @property
    def fp64_tflops(self) -> float:
        ...
    @property
    def ghz(self) -> float:
        """
        Boost clock, which the rates belong to.
        """
    @property
    def l2_bytes(self) -> int:
        ...
    @property
    def l2_gbs(self) -> float:
        """
        1e9 bytes a second.
        """
    @property
    def measured(self) -> bool:
        """
        By programs; otherwise figures of data sheets.
        """
    @property
    def memory_gbs(self) -> float:
        """
        1e9 bytes a second.
        """
    @property
    def multiprocessors(self) -> int:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def shared_bytes_per_block(self) -> int:
        ...
    @property
    def source(self) -> str:
        """
        Where the figures come from.
        """
    @property
    def tensor_tflops(self) -> float:
        """
        Of float16 or bfloat16, summed in float32, dense.
        """
class TritonKernel:
    """
    The tiles of one kernel, and how long it should take.
    """
    def __repr__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    @property
    def blocks(self) -> int:
        """
        That the kernel is started with.
        """
    @property
    def candidates(self) -> int:
        """
        Tiles that there were to choose from.
        """
    @property
    def columns(self) -> int:
        """
        The same.
        """
    @property
    def depth(self) -> int:
        """
        Terms at a time.
        """
    @property
    def kind(self) -> str:
        """
        "points": a term of every result after the other; "reduced": many terms at a time; "product": of matrices, by ``tl.dot``.
        """
    @property
    def output(self) -> str:
        """
        The tensor that it computes.
        """
    @property
    def parts(self) -> int:
        """
        Blocks that share the terms of a result; a second kernel adds up what they make.
        """
    @property
    def rows(self) -> int:
        """
        Of a block's results.
        """
    @property
    def seconds(self) -> float:
        """
        Predicted.
        """
    @property
    def split_tf32(self) -> bool:
        """
        Whether a float32 product is three of TF32, on tensor cores.
        """
    @property
    def stages(self) -> int:
        ...
    @property
    def steps(self) -> int:
        """
        Of `depth` terms that a block takes.
        """
    @property
    def times(self) -> dict[str, float]:
        """
        Predicted seconds where only multiply-adds, index arithmetic, shared memory, L2, memory or the latency of loads held it up.
        """
    @property
    def warps(self) -> int:
        ...
class TritonText:
    """
    A program as Triton kernels.
    """
    def __repr__(self) -> str:
        ...
    def __str__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    @property
    def kernels(self) -> list[TritonKernel]:
        """
        One a scope.
        """
    @property
    def seconds(self) -> float:
        """
        Predicted, of one run on the GPU that it was written for.
        """
    @property
    def source(self) -> str:
        """
        A Python module with ``run(*inputs)``.
        """
class MemoryLevel:
    """
    One level of the memory hierarchy, as a single busy core sees it.
    """
    def __repr__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    def seconds(self, read: typing.SupportsFloat | typing.SupportsIndex, written: typing.SupportsFloat | typing.SupportsIndex) -> float:
        """
        The least time to read and to write so many bytes in order: as much as can be as a copy.
        """
    @property
    def bytes(self) -> int:
        """
        Capacity.
        """
    @property
    def copy_gbs(self) -> float:
        """
        1e9 bytes a second, read and written together, copying in order.
        """
    @property
    def latency_ns(self) -> float:
        """
        Of a load whose address waits for the last one.
        """
    @property
    def line_bytes(self) -> int:
        ...
    @property
    def name(self) -> str:
        ...
    @property
    def read_gbs(self) -> float:
        """
        1e9 bytes a second, reading in order.
        """
    @property
    def shared_by(self) -> int:
        """
        Hardware threads that share it.
        """
    @property
    def usable_bytes(self) -> int:
        """
        What of it was left by others when it was measured; all where it was not.
        """
    @property
    def ways(self) -> int:
        """
        Of a set-associative cache; 0 for main memory.
        """
    @property
    def write_gbs(self) -> float:
        """
        1e9 bytes a second, writing in order. A line that is read before it is written counts once.
        """
class Tlb:
    """
    The pages whose places a core has at hand: of what lies in others it first walks through tables.
    """
    def __repr__(self) -> str:
        ...
    @property
    def page_bytes(self) -> int:
        ...
    @property
    def pages(self) -> int:
        """
        0: not known, and walks are not counted.
        """
    @property
    def walk_ns(self) -> float:
        """
        Of a load whose address waits for the last one, beside the line.
        """
class MachineModel:
    """
        What one core of a machine computes a second and what each memory level gives it. Immutable.
    
        Schedules are constructed from it alone, so that they can be made for a machine that is not here.
    """
    @staticmethod
    def from_json(text: str) -> MachineModel:
        """
            Read a machine file.
        
            Raises:
                FormatError: names the path of what is missing, unknown, of another type or impossible.
        """
    def __eq__(self, arg0: MachineModel) -> bool:
        ...
    def __hash__(self) -> int:
        ...
    def __repr__(self) -> str:
        ...
    def __str__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    def peak_gflops(self, element_bytes: typing.SupportsInt | typing.SupportsIndex = 4) -> float:
        """
        Multiply-add peak of one core, 1e9 floating-point operations a second (a multiply-add is two).
        """
    def to_json(self) -> str:
        """
        The machine file, as text; ``from_json`` reads it back.
        """
    @property
    def access_cycles(self) -> dict[str, float]:
        """
        Cycles of accesses that are no plain vector, of data in the first cache: "broadcast" of a number into
        all lanes, "unaligned" of a vector beyond an aligned one, "picked" of one whose lanes are picked from
        two, "gathered" and "scattered" of an element, "narrow_store" of half a vector or less, "masked" of
        a mask that is computed, "near_piece" of a line of the second cache in short pieces far apart, "maximum" of the larger of two
        vectors that may hold what is no number.
        """
    @property
    def cores(self) -> int:
        ...
    @property
    def disturbed(self) -> bool:
        """
        Whether it was measured while something else used the core.
        """
    @property
    def fma_latency_cycles(self) -> float:
        ...
    @property
    def fma_per_cycle(self) -> float:
        """
        Vector multiply-adds a cycle, sustained.
        """
    @property
    def fma_pipes(self) -> float:
        """
        Vector multiply-adds that a cycle starts: what was measured, in whole ports, no fewer than `fma_ports`.
        """
    @property
    def fma_ports(self) -> float:
        """
        Those that every CPU of its name starts in a cycle; 0: not known, or not the same on all.
        """
    @property
    def ghz(self) -> float:
        ...
    @property
    def levels(self) -> list[MemoryLevel]:
        """
        Nearest to the core first; the last one is main memory.
        """
    @property
    def measured(self) -> bool:
        """
        By micro-benchmarks; otherwise rates are typical ones.
        """
    @property
    def name(self) -> str:
        ...
    @property
    def source(self) -> str:
        """
        Where the figures come from; empty: this machine.
        """
    @property
    def threads_per_core(self) -> int:
        ...
    @property
    def tlb(self) -> Tlb:
        ...
    @property
    def vector_bits(self) -> int:
        ...
    @property
    def vector_registers(self) -> int:
        ...
class Prediction:
    """
    How long a loop nest should take, and what limits it.
    """
    def __repr__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    @property
    def bottleneck(self) -> str:
        """
        'multiply-adds', 'loads', 'stores', 'latency of sums', 'registers', 'loop overhead', 'short pieces', 'page walks' or the name of a level.
        """
    @property
    def compute_s(self) -> float:
        """
        With every access in the first cache.
        """
    @property
    def flops(self) -> float:
        """
        A multiply-add is two.
        """
    @property
    def fraction_of_peak(self) -> float:
        """
        Of the multiply-add peak of the threads used.
        """
    @property
    def memory_s(self) -> list[float]:
        """
        Of what each level of the machine gives.
        """
    @property
    def moved_bytes(self) -> list[float]:
        """
        What each level of the machine gives.
        """
    @property
    def overhead_s(self) -> float:
        """
        Entering loops and starting threads.
        """
    @property
    def page_walks(self) -> float:
        """
        Pages that the TLB does not hold when they are touched; 0 where all fit it or its size is not known.
        """
    @property
    def seconds(self) -> float:
        """
        Of one call.
        """
    @property
    def waiting_s(self) -> float:
        """
        For short pieces of the second cache far apart, which nothing hides.
        """
    @property
    def walking_s(self) -> float:
        """
        What walks through page tables add.
        """
class CacheTraffic:
    """
    What a loop nest asked of caches.
    """
    def __repr__(self) -> str:
        ...
    @property
    def loads(self) -> int:
        """
        Instructions that read memory; a vector is one.
        """
    @property
    def misses(self) -> list[int]:
        """
        Lines that were not there, by level of the machine but for main memory.
        """
    @property
    def page_walks(self) -> int:
        """
        To pages that the TLB did not hold; 0 where the machine says nothing of it.
        """
    @property
    def stores(self) -> int:
        """
        Instructions that write memory.
        """
class ConstructSketch:
    """
    A way to schedule one reduction: the structure, and the numbers it leaves open.
    """
    def __repr__(self) -> str:
        ...
    def breakdown(self, numbers: typing.Any = {}) -> dict[str, float]:
        """
        What ``estimate`` is made of, in cycles: computing hides most of moving, nothing hides waiting.
        
            Args:
                numbers: those that differ from the counted ones, as ``{"rows": 4}``.
            Raises:
                UnknownName: a number that the sketch does not leave open.
                ScheduleError: a value it does not have.
        """
    def estimate(self, numbers: typing.Any) -> float:
        """
        Predicted cycles by count; infinite where there is no such register tile.
        """
    def tiling(self, numbers: typing.Any = {}) -> str:
        """
        In words: the register tile, the loops around it, the copies and where the result goes.
        
            Args:
                numbers: those that differ from the counted ones, as ``{"rows": 4}``.
            Raises:
                UnknownName: a number that the sketch does not leave open.
                ScheduleError: a value it does not have.
        """
    @property
    def choices(self) -> dict[str, list[int]]:
        """
        The values of each number that is left open, by name.
        """
    @property
    def counted(self) -> dict[str, int]:
        """
        The numbers that count the fewest cycles.
        """
    @property
    def cycles(self) -> float:
        """
        Predicted by count, with the counted numbers.
        """
    @property
    def name(self) -> str:
        """
        Of the strategy and of what distinguishes this one.
        """
class ScopeQuestion:
    """
    What a policy is asked: how to write one scope.
    """
    def __repr__(self) -> str:
        ...
    @property
    def extents(self) -> list[int]:
        """
        Of its loops, results first, then sums.
        """
    @property
    def scope(self) -> str:
        """
        The tensor it computes.
        """
    @property
    def sketches(self) -> list[ConstructSketch]:
        """
        What can be answered.
        """
    @property
    def traversal(self) -> int:
        """
        How many of them are over results.
        """
class Constructed:
    """
    A schedule that was constructed without measuring, and why.
    """
    def __repr__(self) -> str:
        ...
    def __str__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    def text(self, *, walk: bool = False) -> str:
        """
        Why the schedule is as it is; with ``walk``, every step of the walks instead of those that tell most.
        """
    def to_json(self) -> str:
        """
        Walks, benefits, ranking, as JSON text.
        """
    @property
    def bottleneck(self) -> str:
        ...
    @property
    def construct_ms(self) -> float:
        ...
    @property
    def counted_s(self) -> float:
        """
        Predicted for the counted schedule.
        """
    @property
    def predicted_s(self) -> float:
        """
        Of one call.
        """
    @property
    def prediction(self) -> Prediction:
        ...
    @property
    def schedule(self) -> Schedule:
        ...
class Measured:
    """
    What one candidate took, or why it has no time.
    """
    def __repr__(self) -> str:
        ...
    def _repr_html_(self) -> str:
        ...
    @property
    def calls(self) -> int:
        """
        In a sample.
        """
    @property
    def compile_ms(self) -> float:
        ...
    @property
    def median_s(self) -> float:
        """
        Of one call.
        """
    @property
    def note(self) -> str:
        """
        What may have disturbed the times; empty: nothing known.
        """
    @property
    def outcome(self) -> str:
        """
        'ok', 'not applicable', 'wrong', 'crashed', 'timed out' or 'too much memory'.
        """
    @property
    def q1_s(self) -> float:
        ...
    @property
    def q3_s(self) -> float:
        ...
    @property
    def reason(self) -> str:
        """
        Where the outcome is not 'ok'.
        """
    @property
    def samples(self) -> int:
        ...
    @property
    def spills(self) -> int:
        ...
class MeasureOptions:
    """
    How candidates are measured.
    """
    def __init__(self) -> None:
        ...
    @property
    def cache_directory(self) -> str:
        """
        Of compiled objects; empty: none.
        """
    @cache_directory.setter
    def cache_directory(self, arg0: str) -> None:
        ...
    @property
    def cold(self) -> bool:
        """
        Caches are flushed before every call.
        """
    @cold.setter
    def cold(self, arg0: bool) -> None:
        ...
    @property
    def compilers(self) -> int:
        """
        Threads that compile; 0: as many as there are.
        """
    @compilers.setter
    def compilers(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    @property
    def limit_s(self) -> float:
        """
        For verifying and timing one candidate, seconds.
        """
    @limit_s.setter
    def limit_s(self, arg0: typing.SupportsFloat | typing.SupportsIndex) -> None:
        ...
    @property
    def lock_file(self) -> str:
        """
        Held while something is timed; empty: no lock.
        """
    @lock_file.setter
    def lock_file(self, arg0: str) -> None:
        ...
    @property
    def lock_wait_s(self) -> float:
        """
        After so many seconds it is timed without the lock, and noted.
        """
    @lock_wait_s.setter
    def lock_wait_s(self, arg0: typing.SupportsFloat | typing.SupportsIndex) -> None:
        ...
    @property
    def memory_bytes(self) -> int:
        """
        Arguments and workspace together.
        """
    @memory_bytes.setter
    def memory_bytes(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    @property
    def pin(self) -> int:
        """
        CPU to run on with one thread; -1: the last usable one.
        """
    @pin.setter
    def pin(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    @property
    def sample_s(self) -> float:
        """
        A sample repeats the call for this long, seconds.
        """
    @sample_s.setter
    def sample_s(self, arg0: typing.SupportsFloat | typing.SupportsIndex) -> None:
        ...
    @property
    def samples(self) -> int:
        """
        3 to 64.
        """
    @samples.setter
    def samples(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    @property
    def threads(self) -> int:
        """
        Of a call.
        """
    @threads.setter
    def threads(self, arg0: typing.SupportsInt | typing.SupportsIndex) -> None:
        ...
    @property
    def verify(self) -> bool:
        """
        Against the interpreter, before anything is timed.
        """
    @verify.setter
    def verify(self, arg0: bool) -> None:
        ...
class Candidate:
    """
    A schedule that applies, with what a cost model sees of it.
    """
    @property
    def features(self) -> list[float]:
        """
        In the order of ``feature_names()``.
        """
    @property
    def predicted_s(self) -> float:
        """
        Of one call.
        """
    @property
    def schedule(self) -> Schedule:
        ...
class ScheduleSpace:
    """
        The space a search draws schedules of one program from: sketches with numbers, and traces changed in place.
    
        Every candidate applies to the program and keeps its meaning. The same seed draws the same candidate.
    """
    def __init__(self, program: Program, machine: MachineModel, *, dtype: str = 'float32', threads: typing.SupportsInt | typing.SupportsIndex = 1, constants: collections.abc.Sequence[str] = [], laid_out: bool = False) -> None:
        """
            Args:
                constants: inputs that stay the same over calls: what is made of them alone is prepacked, and what is predicted
                    is a call without it.
                laid_out: the program says where intermediate results lie, as one with chosen layouts does; no schedule says
                    otherwise.
        """
    def candidate(self, schedule: Schedule) -> Candidate | None:
        """
        Of a schedule from elsewhere; None where it does not apply.
        """
    def cross(self, a: Candidate, b: Candidate, seed: typing.SupportsInt | typing.SupportsIndex) -> Candidate | None:
        """
        Each scope's choice from one of two parents; None where nothing applies.
        """
    def mutate(self, parent: Candidate, seed: typing.SupportsInt | typing.SupportsIndex) -> Candidate | None:
        """
        One number, sketch or decision changed; None where nothing applies.
        """
    def sample(self, seed: typing.SupportsInt | typing.SupportsIndex) -> Candidate | None:
        """
        A random sketch with random numbers for every reduction; None where nothing applies.
        """
    def starts(self) -> list[Candidate]:
        """
        Where a search begins: every sketch of every reduction by its counted numbers, the others as counted; what is predicted to be fastest first.
        """
class RewriteSite:
    """
    Where a rewrite applies, by names.
    """
    __hash__: typing.ClassVar[None] = None
    def __eq__(self, arg0: RewriteSite) -> bool:
        ...
    def __init__(self, scope: str, iterator: str = '', other: str = '', made: str = '', numbers: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = []) -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __str__(self) -> str:
        ...
    @property
    def iterator(self) -> str:
        """
        Of that scope; empty where the rewrite is not about one.
        """
    @property
    def made(self) -> str:
        """
        The tensor that comes into being; empty: a name nobody has.
        """
    @property
    def numbers(self) -> list[int]:
        """
        What the rewrite lets one choose: a factor, a tile's size.
        """
    @property
    def other(self) -> str:
        """
        Another scope or iterator; empty where it is about one only.
        """
    @property
    def scope(self) -> str:
        """
        The scope that changes, by its output.
        """
class EinnetSearch:
    """
    What a search in EINNET's space found.
    """
    def __repr__(self) -> str:
        ...
    @property
    def applications(self) -> int:
        ...
    @property
    def bytes(self) -> int:
        """
        Of memory for states, in the end.
        """
    @property
    def candidates(self) -> int:
        ...
    @property
    def converged(self) -> int:
        """
        Of the states, those that the converging stage made.
        """
    @property
    def derivations(self) -> list[...]:
        ...
    @property
    def ended(self) -> str:
        ...
    @property
    def labels(self) -> list[str]:
        """
        Of each derivation: which operator its product is.
        """
    @property
    def levels(self) -> list[tuple[int, int, float]]:
        """
        By depth: new states, those that are the target, seconds since the beginning.
        """
    @property
    def missing(self) -> str:
        """
        What they are.
        """
    @property
    def nearest(self) -> int:
        """
        How many iterators the nearest state is away from the target; 0: it was found.
        """
    @property
    def repeats(self) -> int:
        ...
    @property
    def seconds(self) -> float:
        ...
    @property
    def states(self) -> int:
        ...
    @property
    def target_depth(self) -> int:
        """
        The least number of steps to the target; -1 where it was not found.
        """
class Derivation:
    """
    A program that rewrites made of another one.
    """
    @property
    def bytes(self) -> float:
        """
        Each tensor that a scope of a call touches, once.
        """
    @property
    def exact(self) -> bool:
        ...
    @property
    def guessed_s(self) -> float:
        ...
    @property
    def key(self) -> str:
        ...
    @property
    def multiply_adds(self) -> float:
        """
        Of a call; what constants alone decide is not counted.
        """
    @property
    def program(self) -> Program:
        ...
    @property
    def roughness(self) -> float:
        """
        See roughness().
        """
    @property
    def steps(self) -> list[tuple[str, RewriteSite]]:
        """
        (rewrite, site), from the given program on.
        """
class DerivationSearch:
    """
    What a search among equivalent programs found.
    """
    def __repr__(self) -> str:
        ...
    @property
    def applications(self) -> int:
        ...
    @property
    def costly(self) -> int:
        ...
    @property
    def deepest(self) -> int:
        ...
    @property
    def derivations(self) -> list[Derivation]:
        ...
    @property
    def ended(self) -> str:
        ...
    @property
    def repeats(self) -> int:
        ...
    @property
    def rough(self) -> int:
        ...
    @property
    def seconds(self) -> float:
        ...
    @property
    def states(self) -> int:
        ...
class GraphNode:
    """
    A node of a graph: a program, or a call of a function.
    """
    def __repr__(self) -> str:
        ...
    @property
    def attributes(self) -> str:
        """
        Of a call: a JSON object.
        """
    @property
    def function(self) -> str:
        """
        Of a call: whom.
        """
    @property
    def inputs(self) -> list[str]:
        """
        Names of the tensors that it reads.
        """
    @property
    def name(self) -> str:
        """
        Of the node.
        """
    @property
    def outputs(self) -> list[str]:
        """
        Names of the tensors that it computes.
        """
    @property
    def program(self) -> Program | None:
        """
        What it computes; None for a call.
        """
    @property
    def program_text(self) -> str:
        """
        The full text of its program; empty for a call.
        """
class Graph:
    """
        A network: nodes that are tensor programs, or calls of functions, and tensors between them.
    
        Example:
            >>> from syno._core import Graph, Program
            >>> graph = Graph("small")
            >>> graph.add_input("x", [2, 3], "float32")
            >>> graph.add_program("relu", Program.parse("y[i,j] = relu(x[i,j])", shapes={"x": [2, 3]}), ["x"], ["t"])
            >>> graph.set_outputs(["t"])
            >>> graph.tensor("t")
            ([2, 3], 'float32', 'computed')
    """
    @staticmethod
    def parse(text: str) -> Graph:
        """
            Read the text that `text` writes.
        
            Raises:
                ParseError: the text is malformed, naming the line.
                VerifyError: nodes and tensors do not fit each other.
        """
    def __init__(self, name: str = 'graph') -> None:
        ...
    def __repr__(self) -> str:
        ...
    def __str__(self) -> str:
        ...
    def add_call(self, name: str, function: str, attributes: str, inputs: collections.abc.Sequence[str], outputs: collections.abc.Sequence[tuple[str, collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], str]]) -> None:
        """
            A node that a function computes: `gather`, `scatter`, `cast`, `argmax`, `sample`, `scan` and `copy` are the engine's, others the host's.
        
            Args:
                attributes: a JSON object; ``{"random": true}`` keeps two equal calls apart.
                outputs: (name, shape, dtype) of new tensors.
            Raises:
                FormatError: attributes that are no JSON object.
                VerifyError, UnknownName: as for `add_program`.
        """
    def add_input(self, name: str, shape: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], dtype: str = 'float32') -> None:
        """
        A tensor that the caller gives.
        """
    def add_program(self, name: str, program: Program, inputs: collections.abc.Sequence[str], outputs: collections.abc.Sequence[str], dtype: str = 'float32') -> None:
        """
            A node that computes a program.
        
            Args:
                inputs: names of tensors, in the order of the program's inputs.
                outputs: names of new tensors, in the order of its outputs.
                dtype: of all of them: "float32", "float64" or "bfloat16".
            Raises:
                VerifyError: they do not fit the program.
                UnknownName: there is no such tensor or type.
        """
    def add_weight(self, name: str, shape: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], dtype: str = 'float32') -> None:
        """
        A tensor that stays the same over calls.
        """
    def channels(self, node: str) -> list[tuple[str, int]]:
        """
        (tensor, dimension) of a node's inputs and outputs that move with another factor of a sum of products; of a node that is none, none. ScheduleError for a call.
        """
    def cleaned(self) -> Graph:
        """
        The graph after all rewrites of `graph_rows` that do not reassociate, until none applies.
        """
    def constant_nodes(self) -> list[str]:
        """
        Names of the nodes that depend on weights alone.
        """
    def copy(self) -> Graph:
        """
        Another graph with the same content.
        """
    def dot(self) -> str:
        """
        For Graphviz.
        """
    def interpret(self, values: collections.abc.Mapping[str, typing.Annotated[numpy.typing.ArrayLike, numpy.float64]], call: collections.abc.Callable | None = None) -> dict[str, numpy.typing.NDArray[numpy.float64]]:
        """
            The outputs by name, in double precision: slow, and what everything else is held to.
        
            Args:
                values: arrays of the inputs and weights by name.
                call: from a node and its inputs' arrays to its outputs' ones, for functions of the host.
            Raises:
                ShapeError: a value is missing, or of another shape.
                KernelError: a function of the host, and no `call`.
        """
    def is_elementwise(self, node: str) -> bool:
        """
        Whether a node computes each element of its output from those at the same place.
        """
    def is_view(self, node: str) -> bool:
        """
        Whether a node's output has its one input's elements in the same row-major order.
        """
    def joined_parts(self, node: str) -> list[int]:
        """
        Where each input of a node begins in its output, in elements, if they lie there one behind the other; empty if they do not.
        """
    def key(self) -> str:
        """
        32 hexadecimal digits: equal for graphs that are equal up to names and the order of independent nodes.
        """
    def lay_out(self, layouts: collections.abc.Mapping[str, str], inner: bool = True) -> Graph:
        """
            The graph in which these tensors lie in other layouts (ALT §4): programs that compute or read them are
            rewritten; inputs, weights and what calls compute are copied into theirs, what the graph returns or a call
            reads is copied back.
        
            Args:
                layouts: by tensor, sequences of ``split(dimension, extents...)``, ``reorder(order...)``,
                    ``fuse(dimension, count)``, ``unfold(dimension, tile, stride)``, ``pad(dimension, before, after)`` and
                    ``store_at(dimension, slots)``, dimensions from 0.
                inner: give what is elementwise of such a tensor within its program the layout, too.
            Raises:
                ScheduleError: a step does not fit its tensor, or no program computes on its type.
                ShapeError: a tensor without elements.
                ParseError, UnknownName: a text that is no layout, a name that no tensor or primitive has.
        
            Example:
                >>> from syno._core import Graph, Program
                >>> graph = Graph("small")
                >>> graph.add_input("x", [2, 4], "float32")
                >>> graph.add_program("relu", Program.parse("y[i,j] = relu(x[i,j])", shapes={"x": [2, 4]}), ["x"], ["t"])
                >>> graph.add_program("half", Program.parse("y[i,j] = x[i,j] / 2", shapes={"x": [2, 4]}), ["t"], ["y"])
                >>> graph.set_outputs(["y"])
                >>> graph.lay_out({"t": "reorder(1, 0)"}).tensor("t")
                ([4, 2], 'float32', 'computed')
        """
    def layout(self, name: str) -> tuple[str, list[int]]:
        """
        (layout, shape of what lies so) of a tensor; the text of a row-major one is empty.
        """
    def merged(self, nodes: collections.abc.Sequence[str], name: str = '') -> Graph:
        """
            The graph with these program nodes as one.
        
            Raises:
                ScheduleError: they cannot be one, and why.
                ShapeError: no node, or one twice.
        """
    def only_reads(self, node: str) -> bool:
        """
        Whether each element of a node's output is an element of its one input.
        """
    def propagated(self, layouts: collections.abc.Mapping[str, str], rules: Propagation = ...) -> dict[str, str]:
        """
            These layouts, and those that follow for further tensors (ALT §4.1.3).
        
            Raises:
                ParseError, UnknownName: as for `lay_out`.
        
            Example:
                >>> from syno._core import Graph, Program
                >>> graph = Graph("small")
                >>> graph.add_input("x", [2, 4], "float32")
                >>> for name, read in ("a", "x"), ("b", "a"), ("c", "b"):
                ...     graph.add_program(name, Program.parse("y[i,j] = relu(x[i,j])", shapes={"x": [2, 4]}), [read], [name])
                >>> graph.set_outputs(["c"])
                >>> graph.propagated({"a": "reorder(1, 0)"})
                {'a': 'reorder(1, 0)', 'b': 'reorder(1, 0)'}
        """
    def row_major(self, tensors: collections.abc.Sequence[str]) -> Graph:
        """
        The graph in which these tensors have no layout; ScheduleError where one has none.
        """
    def run_of(self, node: str) -> int | None:
        """
        The element of a node's one input from which on its output is a run of that, in row-major order; None where it is none.
        """
    def scales_in_weights(self) -> Graph:
        """
        The graph after the rewrite `scales`, until it applies nowhere.
        """
    def set_outputs(self, names: collections.abc.Sequence[str]) -> None:
        """
        What the network returns: any tensors, in order.
        """
    def store_at(self, guest: str, host: str, dim: typing.SupportsInt | typing.SupportsIndex) -> Graph:
        """
            The graph in which a constant lies behind dimension `dim` of another one (ALT's store_at): a bias in the rows
            of its weight.
        
            Args:
                guest: a tensor of the shape that `host` has before dimension `dim`.
            Raises:
                ScheduleError: one of the two is no constant.
                ShapeError: the shapes do not fit.
        """
    def tensor(self, name: str) -> tuple[list[int], str, str]:
        """
        (shape, dtype, role) of a tensor; the role is input, weight or computed.
        """
    def text(self) -> str:
        """
        The full text form; parsing it gives the same graph.
        """
    def try_merged(self, nodes: collections.abc.Sequence[str], name: str = '') -> Graph | str:
        """
        The graph with these program nodes as one, or the reason why they cannot be one.
        """
    def verify(self) -> None:
        """
        Checks every invariant; VerifyError says which one does not hold.
        """
    def with_copy(self, tensor: str, nodes: collections.abc.Sequence[str]) -> tuple[Graph, str]:
        """
            The graph in which these nodes read a copy of a tensor, which may have a layout of its own; and its name.
        
            Raises:
                ScheduleError: one of the nodes is no program that reads it.
        """
    @property
    def inputs(self) -> list[str]:
        """
        Names, in order.
        """
    @property
    def name(self) -> str:
        """
        Of the network.
        """
    @property
    def nodes(self) -> list[GraphNode]:
        """
        In an order in which each reads what is computed before it.
        """
    @property
    def outputs(self) -> list[str]:
        """
        Names, in order.
        """
    @property
    def weights(self) -> list[str]:
        """
        Names, in order.
        """
class GraphSite:
    """
    Where a rewrite of graphs applies, by the names of nodes.
    """
    __hash__: typing.ClassVar[None] = None
    def __eq__(self, arg0: GraphSite) -> bool:
        ...
    def __init__(self, node: str, other: str = '') -> None:
        ...
    def __repr__(self) -> str:
        ...
    @property
    def node(self) -> str:
        """
        The one that goes or changes.
        """
    @property
    def other(self) -> str:
        """
        A second one, if the rewrite is about two.
        """
class NativeLibrary:
    """
    Machine code of kernels that was linked before: loaded without LLVM, run as it is.
    """
    def __init__(self, elf: typing_extensions.Buffer) -> None:
        """
            Loads a shared object from memory.
        
            Raises:
                FormatError: it is none for this machine, or describes no kernels.
                KernelError: the system cannot load it.
        """
    def __repr__(self) -> str:
        ...
    @property
    def kernels(self) -> dict[str, tuple[int, int, list[int], list[tuple[int, int]]]]:
        """
        (workspace, workspace of each thread, arguments' sizes, least and greatest value of each size that calls bring along) by symbol; in bytes.
        """
class Executable:
    """
    A network's steps, run one after the other in one call.
    """
    def __init__(self, steps: collections.abc.Sequence[tuple], arena_bytes: typing.SupportsInt | typing.SupportsIndex, externals: typing.SupportsInt | typing.SupportsIndex, host: collections.abc.Callable | None = None) -> None:
        """
            Steps in order.
        
            Args:
                steps: ``("kernel", kernel, threads, arguments)``, ``("native", library, symbol, threads, sizes, arguments)``,
                    ``("builtin", name, attributes, [(shape, dtype)], inputs, arguments)`` or ``("host", arguments)``; an argument is ``("arena", byte)``, ``("external", number)`` or
                    ``("fixed", address)``, inputs first.
                externals: how many buffers a caller gives: inputs, then outputs.
                host: called with the step's number and its arguments' addresses.
            Raises:
                ShapeError, UnknownName: a step that does not fit.
        """
    def profile(self, addresses: collections.abc.Sequence, threads: typing.SupportsInt | typing.SupportsIndex = 1, turns: typing.SupportsInt | typing.SupportsIndex = 15) -> list[float]:
        """
        Median seconds of each step.
        """
    def run(self, addresses: collections.abc.Sequence, threads: typing.SupportsInt | typing.SupportsIndex = 1) -> None:
        """
        One run on the caller's row-major buffers; nothing about them is checked. Thread-safe.
        """
    @property
    def arena_bytes(self) -> int:
        """
        Between the steps of one run.
        """
    @property
    def step_count(self) -> int:
        """
        Of all kinds.
        """
class Merging:
    """
    Pairs of nodes of a graph merged one after the other, each in a time that does not depend on how large the graph is.
    
    Nodes are called by numbers: those of the graph by their places, merged ones from there on. What comes of it is what
    `Graph.merged` makes, pair by pair.
    
    Args:
        graph: without layouts.
    Raises:
        ScheduleError: a tensor has a layout.
    """
    def __init__(self, graph: Graph) -> None:
        ...
    def alone(self, producer: typing.SupportsInt | typing.SupportsIndex, reader: typing.SupportsInt | typing.SupportsIndex) -> Graph | str:
        """
        The node that a producer and its reader would be, in a graph of its own; or the reason why they cannot be one.
        
            Raises:
                ShapeError: they are no such nodes, or were merged with others.
        """
    def find(self, name: str) -> int | None:
        """
        The number of the node of that name; None: there is none.
        """
    def goes_first(self, producer: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        From now on pairs of this producer come before all others.
        
            Raises:
                ShapeError: there is no such node, or it was merged.
        """
    def graph(self) -> Graph:
        """
        The graph with what was merged until now.
        """
    def is_view(self, number: typing.SupportsInt | typing.SupportsIndex) -> bool:
        """
        Whether a node's output is all of its one input, as it lies.
        """
    def merge(self, producer: typing.SupportsInt | typing.SupportsIndex, reader: typing.SupportsInt | typing.SupportsIndex) -> int | str:
        """
        Makes them one.
        
            Returns:
                Its number; or the reason why they cannot be one.
            Raises:
                ShapeError: they are no such nodes, or were merged with others.
        """
    def next(self) -> tuple[int, int] | None:
        """
            The first producer and reader that were not refused; None where there are none left.
        
            Returns:
                First those whose producer goes first, then all; in the order of the readers, and for one reader in the order of what
                it reads.
        """
    def node(self, number: typing.SupportsInt | typing.SupportsIndex) -> GraphNode:
        """
        The node of that number.
        
            Raises:
                ShapeError: there is none, or it was merged.
        """
    def refuse(self, producer: typing.SupportsInt | typing.SupportsIndex, reader: typing.SupportsInt | typing.SupportsIndex) -> None:
        """
        Leaves a pair out from now on.
        """
    def wiring(self, producer: typing.SupportsInt | typing.SupportsIndex, reader: typing.SupportsInt | typing.SupportsIndex) -> list[int]:
        """
        Equal for pairs of equal programs whose merged nodes are equal but for names: which of their tensors are the same, what these are to the graph, and who else reads them.
        """
class Propagation:
    """
    The rules by which layouts spread (ALT §4.1.3).
    """
    def __init__(self, *, up: bool = True, down: bool = True, equal_shapes: bool = True, one_to_one: bool = True, independent: bool = True) -> None:
        """
            Args:
                up: to what an elementwise node reads.
                down: to what an elementwise node computes.
                equal_shapes: only along elementwise nodes, between tensors of one shape.
                one_to_one: only layouts with one element a place.
                independent: not through sums of products.
        """
    def __repr__(self) -> str:
        ...
    @property
    def down(self) -> bool:
        """
        To what an elementwise node computes.
        """
    @property
    def equal_shapes(self) -> bool:
        """
        Only along elementwise nodes, between tensors of one shape.
        """
    @property
    def independent(self) -> bool:
        """
        Not through sums of products.
        """
    @property
    def one_to_one(self) -> bool:
        """
        Only layouts with one element a place.
        """
    @property
    def up(self) -> bool:
        """
        To what an elementwise node reads.
        """
def address_of(bytes: typing_extensions.Buffer) -> int:
    """
    Where memory begins; whoever uses it keeps it alive.
    """
def adopt_cache_entry(entry: bytes) -> bytes:
    """
    The same compiled object under this process's secret, for code that is trusted; b'' where it is none.
    """
def allowed(spec: Spec, pgraph: PGraph) -> bool:
    """
    Whether rules, budgets and shape distance allow every prefix of an operator and the whole.
    """
def apply_prepacked(program: Program, schedule: Schedule, sizes: collections.abc.Sequence[tuple[str, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]] = []) -> tuple[LoopNest, LoopNest] | None:
    """
        Make two loop nests of a program under a schedule: what its `prepack` decisions compute once, and the rest.
    
        Args:
            program: a concrete one.
            schedule: its decisions, in order.
            sizes: as for `apply_schedule`.
        Returns:
            (prepack, call), or None where nothing is prepacked. The outputs of `prepack` are inputs of `call`, by name,
            after the inputs that `call` still reads itself.
        Raises:
            ScheduleError: names the decision, its index in the trace and why it does not apply.
            UnknownName: a decision, scope, loop or tensor that there is not; lists the valid ones.
    """
def apply_schedule(program: Program, schedule: Schedule, sizes: collections.abc.Sequence[tuple[str, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]] = []) -> LoopNest:
    """
        Make the loop nest of a program under a schedule.
    
        Args:
            program: a concrete one.
            schedule: its decisions, in order.
            sizes: (name, least, greatest) of those that calls bring along, for a program of `with_live_ends`.
        Raises:
            ShapeError: a size is outside of what the program was made for.
            ScheduleError: names the decision, its index in the trace and why it does not apply.
            UnknownName: a decision, scope, loop or tensor that there is not; lists the valid ones.
    """
def build_id() -> str:
    """
    Identifies this build of the extension, for caches of what it makes: hexadecimal digits.
    """
def cache_entry_key(entry: bytes) -> str:
    """
    The key of a compiled object as it lies in a cache directory; '' where it is damaged or of another secret.
    """
def compare_schedules(program: Program, a: Schedule, b: Schedule, options: MeasureOptions) -> float:
    """
    time(a) / time(b), called in turns in one child process, by first quartiles; 0 where either fails.
    """
def compile_nest(nest: LoopNest, *, cache_directory: str = '', cpu: Cpu | None = None, fresh: bool = False) -> Kernel:
    """
        Compiles a loop nest.
    
        Args:
            cache_directory: where compiled objects are kept; empty: nowhere.
            cpu: of `cpu_named`; default `host_cpu()`.
            fresh: compile even what this process or the cache already has, to time it.
        Raises:
            ScheduleError: the nest does not verify.
            KernelError: no code can be made of it.
    """
def constant_bytes(program: Program, constants: collections.abc.Sequence[str]) -> tuple[int, int]:
    """
    Bytes at 4 an element: of the constant inputs, and of what a call reads once they are folded.
    """
def construct_schedule(program: Program, machine: MachineModel, *, dtype: str = 'float32', threads: typing.SupportsInt | typing.SupportsIndex = 1, policy: str | collections.abc.Callable = 'graph', seed: typing.SupportsInt | typing.SupportsIndex = 0, iterations: typing.SupportsInt | typing.SupportsIndex = 100, walks: typing.SupportsInt | typing.SupportsIndex = 2, annealing: bool = True, vthreads: bool = True, printed: bool = False, record_all: bool = True, counted: bool = True, finalists: typing.SupportsInt | typing.SupportsIndex = 5, refinements: typing.SupportsInt | typing.SupportsIndex = 24, budget: typing.SupportsInt | typing.SupportsIndex = 10000, cold: bool = False, strides: collections.abc.Mapping[str, collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]] = {}, spare_registers: typing.SupportsInt | typing.SupportsIndex = 0, constants: collections.abc.Sequence[str] = [], constants_from: typing.SupportsInt | typing.SupportsIndex = 0, fusions: bool = True, explain: bool = True) -> Constructed:
    """
        Construct a schedule from the machine model, without measuring (Gensor, section IV).
    
        Args:
            program: a concrete one.
            machine: the model it is constructed for.
            dtype: of the arguments: "float32", "float64" or "bfloat16".
            threads: how many the kernel will mostly run on.
            policy: "graph" (Gensor's walk), "tree" (greedy, no way back, as Roller), "uniform" (a random walk along the
                same edges), "all" (every state, up to ``budget``), "counted" (no construction), as
                ``construction_policies()`` lists them; or a function that is asked once a scope, consumers first, and
                again where the construction begins anew. It gets a ``ScopeQuestion`` and returns
                ``(sketch, {choice: value})``: the place or name of a sketch, and the numbers that differ from its
                counted ones. It should depend on the question only.
            seed: of the walks. The result depends on the arguments only.
            iterations: of a walk; walks: restarts for each sketch.
            annealing: the benefit of caching grows with the iteration.
            vthreads: register interleaving exists.
            printed: formula (1) as the paper prints it instead of as its text explains it.
            record_all: every state that can be built is a candidate; otherwise with the paper's probability.
            counted: the counted schedule stays where nothing is predicted to be better.
            finalists: states of a scope that are built and predicted, whatever the policy.
            refinements: states next to the best finalists that are built and predicted, one number after the other moved
                as long as the prediction falls; 0: none.
            budget: states of a sketch that "all" counts.
            cold: arguments come from main memory.
            strides: of arguments that are not row-major, by name, in elements; the nest is for those.
            spare_registers: that tiles leave to the code generator, beside those they always do.
            constants: names of inputs that stay the same over calls; copies of them are prepacked
                (`apply_prepacked`), and predictions are of calls.
            constants_from: an index of the machine's levels: ``constants`` come from there at each call, as weights of a
                network do that no nearer one holds; 0: from the nearest that holds the arguments.
            fusions: scopes may be computed tile by tile of one that reads them, where that is predicted to be faster.
            explain: remember what was considered; the schedule is the same without.
        Raises:
            ScheduleError: the program has symbolic sizes, or a constant is computed or no tensor of it.
            UnknownName: another dtype or policy; a function named a sketch or a choice that there is not.
            ScheduleError: a function answered something else, or what cannot be built.
    """
def construction_policies() -> list[tuple[str, str]]:
    """
    The policies that construct schedules without measuring: (name, meaning) of each.
    """
def conv(*, batch: typing.SupportsInt | typing.SupportsIndex = 1, in_channels: typing.SupportsInt | typing.SupportsIndex, out_channels: typing.SupportsInt | typing.SupportsIndex, in_size: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], kernel: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], stride: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [], dilation: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [], pad_begin: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [], pad_end: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [], groups: typing.SupportsInt | typing.SupportsIndex = 1, bias: bool = False) -> Program:
    """
        A convolution of any rank, as ``torch.nn.functional.conv1d/2d/3d``.
    
        Inputs ``x`` (batch, in_channels, *in_size), weights ``w`` (out_channels, in_channels/groups, *kernel) and with
        ``bias`` ``b`` (out_channels,); output ``y``.
    
        Args:
            in_size, kernel: extents per spatial dimension; their length is the rank.
            stride, dilation: per spatial dimension; empty for ones.
            pad_begin, pad_end: zeros before and after, per spatial dimension; empty for none.
            groups: divides both channels; ``groups=in_channels`` is depthwise.
        Raises:
            ShapeError: attributes that do not fit together.
        Example:
            >>> from syno._core import conv
            >>> conv(in_channels=8, out_channels=16, in_size=[32], kernel=[4], stride=[2], pad_begin=[1]).shape("y")
            [1, 16, 15]
    """
def conv_transposed(*, batch: typing.SupportsInt | typing.SupportsIndex = 1, in_channels: typing.SupportsInt | typing.SupportsIndex, out_channels: typing.SupportsInt | typing.SupportsIndex, in_size: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], kernel: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], stride: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [], dilation: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [], pad_begin: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [], pad_end: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [], output_padding: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [], groups: typing.SupportsInt | typing.SupportsIndex = 1, bias: bool = False) -> Program:
    """
        A transposed convolution of any rank, as ``torch.nn.functional.conv_transpose1d/2d/3d``.
    
        Weights ``w`` (in_channels, out_channels/groups, *kernel); the other arguments as for ``conv``. Output extents are
        (in - 1)*stride - pad_begin - pad_end + dilation*(kernel - 1) + output_padding + 1.
    
        Raises:
            ShapeError: attributes that do not fit together.
    """
def cpu_named(name: str, target: str | None = None) -> Cpu:
    """
        A CPU to generate code for: ``host``, ``generic``, or a name LLVM knows (``x86-64-v3``, ``znver4``).
    
        Args:
            target: a triple, ``x86_64-linux-gnu`` or ``aarch64-linux-gnu``; default this machine's. On AArch64
                ``generic+sve256`` is any CPU with SVE registers of 256 bits (128, 512).
        Raises:
            UnknownName: no such target, or no such CPU of it; the message lists the valid names.
    """
def decisions() -> list:
    """
        The decisions a schedule may hold.
    
        Returns:
            A list of (name, arguments, meaning), in the order people learn them.
    """
def default_schedule(program: Program, *, dtype: str = 'float32', threads: typing.SupportsInt | typing.SupportsIndex = 1, constants: collections.abc.Sequence[str] = [], strides: collections.abc.Mapping[str, collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex]] = {}) -> Schedule:
    """
        A good schedule for any program on this machine, without measuring: register tiles, vectors, padded and packed
        copies, outermost loops parallel. The same for the same program, dtype and machine.
    
        Args:
            program: a concrete one (``Program.at``).
            dtype: of the arguments: "float32", "float64" or "bfloat16".
            threads: how many the kernel will mostly run on.
            constants: names of inputs that stay the same over calls; copies of them are prepacked
                (`apply_prepacked`).
            strides: of arguments that are not row-major, by name, in elements; the nest is for those.
        Raises:
            ScheduleError: the program has symbolic sizes, or a constant is computed or no tensor of it.
            UnknownName: another dtype.
    """
def derivation(spec: Spec, pgraph: PGraph, examples: typing.SupportsInt | typing.SupportsIndex = 0) -> dict:
    """
        What :func:`explain` says, as data: ``{"steps", "finished_by", "legal"}``.
    
        A step is a dict of ``step`` (its text; empty at the output), ``removed_by``, ``frontier`` (extents), ``distance``
        (-1: out of reach), ``steps_left``, ``kept`` (steps that may follow), ``pruned`` (counts by reason) and
        ``neighbours``: dicts of ``step``, ``pruned_by``, ``why``, ``distance`` and ``taken``.
    
        Raises:
            SpecError: the operator's signature is not the spec's.
    """
def describe_machine(cpu: Cpu | None = None) -> MachineModel:
    """
        What the system says about this machine; rates are typical ones, not measured.
    
        Args:
            cpu: of ``cpu_named``: what code is generated for; default ``host_cpu()``.
    """
def einnet_step(program: Program, site: RewriteSite, target: str = 'any') -> tuple[list[str], str]:
    """
    A line for each move of an 'einnet' step, and which operator the product is in the end.
    """
def elementwise(function: str, *, a: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], b: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = []) -> Program:
    """
        ``y = f(a)`` or ``y = f(a, b)`` with numpy broadcasting between the two shapes (``[]`` is a scalar).
    
        Args:
            function: ``neg exp log sqrt rsqrt erf tanh sigmoid relu abs gelu floor ceil round trunc sin cos atan``, or with two
                operands ``add sub mul div max min pow fmod less less_equal equal not_equal and or``; comparisons give 0 or 1.
            a, b: shapes of the operands.
        Raises:
            UnknownName: another function.
            ShapeError: shapes that do not broadcast.
    """
def emit_c(program: Program, *, function: str = 'syno_operator', double_precision: bool = False, points: typing.SupportsInt | typing.SupportsIndex = 32, seed: typing.SupportsInt | typing.SupportsIndex = 0) -> str:
    """
        C11 that computes the program and checks itself.
    
        ``main`` fills the inputs from a fixed sequence, runs the function, compares sampled elements of every output with
        values that the interpreter gave, prints one line and returns 0 only if all agree.
    
        Args:
            program: concrete, or with a single valuation.
            function: the name of the C function.
            double_precision: compute in ``double`` instead of ``float``.
            points: elements of each output to compare.
            seed: chooses the points.
        Returns:
            A translation unit; ``cc -std=c11 file.c -lm`` builds it.
        Raises:
            ShapeError: the program has several valuations; choose one with ``at``. Or ``function`` is no C identifier.
            VerifyError: the program is not well formed.
    """
def emit_graphviz(program: Program) -> str:
    """
        The program as a graph in the dot language: tensors with roles and shapes, and the scopes between them.
    
        Args:
            program: any program; symbolic sizes are printed as such.
        Raises:
            VerifyError: the program is not well formed.
    """
def emit_latex(program: Program) -> str:
    """
        The program as mathematics, for papers and notebooks: LaTeX without the dollars, several scopes as lines of
        ``aligned``.
    
        Comparisons, 1 where they hold, stand in Iverson's brackets; ranges that begin at 0 are left out, and what a read
        gives outside of its tensor where that is 0.
    
        Args:
            program: any program; symbolic sizes are printed as such.
        Raises:
            VerifyError: the program is not well formed.
    """
def emit_pytorch(program: Program, class_name: str = 'Operator') -> str:
    """
        A PyTorch module that computes the program: plain ATen, differentiable, the same function.
    
        Each scope becomes views, pads and rolls of what it reads and then one convolution, ``einsum`` or element-wise
        expression. ``forward`` takes the inputs with the role ``"input"`` in order; weights are parameters of the same
        names. Where the first dimension of every input only passes through, any batch size works.
    
        Args:
            program: concrete, or with a single valuation.
            class_name: the name of the class, a Python identifier.
        Returns:
            The source of a Python module that needs only ``torch``; its class takes ``dtype`` and ``device``.
        Raises:
            ShapeError: the program has several valuations; choose one with ``at``. Or ``class_name`` is no identifier.
            VerifyError: the program is not well formed.
        Source:
            The PyTorch code generator of Syno §8.
    """
def emit_te(program: Program, dtype: str = 'float32') -> str:
    """
        TVM tensor expressions that compute the program.
    
        Args:
            program: concrete, or with a single valuation.
            dtype: of every tensor, as TVM names it.
        Returns:
            The source of a Python module with ``build() -> (inputs, outputs)``: the placeholders in the order of
            ``program.inputs``, and the output tensors. It needs only ``tvm.te``.
        Raises:
            ShapeError: the program has several valuations; choose one with ``at``.
            VerifyError: the program is not well formed.
        Source:
            The TVM TE code generator of Syno §8.
    """
def emit_triton(program: Program, gpu: GpuModel, dtype: str = 'float32', *, variant: typing.SupportsInt | typing.SupportsIndex | None = None, precision: str = 'ieee', ranks: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = []) -> TritonText:
    """
        Triton kernels that compute the program, a kernel a scope, with tiles chosen from the model of a GPU.
    
        A scope is a matrix product (``tl.dot``) where its factors can be shared out to two operands and
        that is predicted to be the fastest; otherwise its terms are multiplied and added up. Results are the same at each
        run, but for accumulating scopes, which add atomically.
    
        Args:
            program: concrete, or with a single valuation.
            dtype: of inputs and outputs: "float32", "float64", or "float16" and "bfloat16", which compute in float32.
            variant: a number that chooses other tiles among those that fit than the ones predicted to be the fastest.
            precision: of float32 products: "ieee", or "tf32x3", which lets tensor cores compute one as three of TF32 where
                that is predicted to be faster. A value that rounds to more than the largest TF32 number is infinite then.
            ranks: for each scope, which candidate is taken: 0 is the one predicted to be the fastest, and first come those
                that differ in shape. Beyond the last it is the last.
        Returns:
            The source of a Python module that needs only ``torch`` and ``triton``; ``run(*inputs)`` takes the tensors in the
            order of ``program.inputs`` and returns a tuple of outputs.
        Raises:
            ShapeError: the program has several valuations; choose one with ``at``.
            UnknownName: no such dtype or precision.
            KernelError: the program has a function that Triton lacks.
            VerifyError: the program is not well formed.
    """
def enumerate_operators(spec: Spec, *, max_steps: typing.SupportsInt | typing.SupportsIndex, threads: typing.SupportsInt | typing.SupportsIndex = 1, limit: typing.SupportsInt | typing.SupportsIndex | None = None, operator_keys: bool = True, shape_distance: bool = True, memory_mb: typing.SupportsFloat | typing.SupportsIndex = 0.0, checkpoint: str | None = None, most_children: typing.SupportsInt | typing.SupportsIndex = 0) -> EnumerationResult:
    """
        All operators of a spec with at most ``max_steps`` steps, none twice, the same for any number of threads.
    
        Ctrl-C ends it within moments.
    
        Args:
            spec: what the operators are for, and what they may be.
            threads: that search.
            limit: keep at most this many, in the order of the search; ``stats["truncated"]`` tells.
            operator_keys: false keeps operators that compute the same but are built in another way.
            shape_distance: false searches without the distance's bound, for ablations.
            memory_mb: what the search and its operators may hold; 0 for no limit.
            checkpoint: path of a file that keeps what is finished. After an interruption of any kind the same call goes on from
                there and returns what it would have returned; a finished one is read back. Remove it to begin anew.
            most_children: end after about so many steps looked at, ``stats["children"]``; 0 for no limit. An enumeration that
                looks at no more is whole; of one that was ended what was found is a part, ``stats["truncated"]``.
        Raises:
            SpecError: the spec contradicts itself; the memory limit does not suffice, with the depth that may work; or the
                checkpoint is of another enumeration, in use, or cannot be written.
            FormatError: the checkpoint is damaged, of another version, or another kind of file.
    """
def explain(spec: Spec, pgraph: PGraph, examples: typing.SupportsInt | typing.SupportsIndex = 0) -> str:
    """
        How an operator comes about in the search: step by step, with the frontier's sizes, the distance left, how many
        steps could follow and why the others are pruned (rule, budget, ``distance``, ``order``).
    
        Args:
            spec: whose rules, budgets and limits are asked.
            pgraph: the operator.
            examples: list at most this many neighbours of each kind beside every step, each with the reason.
        Raises:
            SpecError: the operator's signature is not the spec's.
    """
def extension_names() -> list[str]:
    """
    Named extensions of the space; each is off unless a spec lists it.
    """
def feature_names() -> list[str]:
    """
    Names of the numbers that ``nest_features`` returns.
    """
def fold_constants(program: Program, constants: collections.abc.Sequence[str]) -> tuple[Program, Program] | None:
    """
        A program in two: what depends on constant inputs alone, and what every call computes of that and the data.
    
        None where nothing that no caller reads depends on constants alone.
    
        Raises:
            UnknownName: no input has one of the names.
    """
def fuses_growing(program: Program, schedule: Schedule) -> bool:
    """
        Whether a schedule makes one loop of several of a scope without sums, of which an inner one ends where calls say.
    
        Such a loop runs as often for small sizes as for large ones. `construct_schedule` of the program itself avoids it.
    
        Args:
            program: of `with_live_ends`.
            schedule: of the program of the largest sizes.
        Raises:
            ScheduleError: names the decision, its index in the trace and why it does not apply.
    """
def g2bmm(*, batch: typing.SupportsInt | typing.SupportsIndex, length: typing.SupportsInt | typing.SupportsIndex, features: typing.SupportsInt | typing.SupportsIndex, width: typing.SupportsInt | typing.SupportsIndex, dilation: typing.SupportsInt | typing.SupportsIndex) -> Program:
    """
        EINNET's general-to-band matrix product (§6).
    
        ``y[b, m, w] = sum_k a[b, m, k] * c[b, m + dilation*(w - width), k]`` for w in [0, 2*width]; ``a`` and ``c`` have
        shape (batch, length, features), and are zero outside.
    
        Raises:
            ShapeError: an extent below 1.
    """
def graph_rewrite(graph: Graph, row: str, site: GraphSite) -> Graph:
    """
        The graph that a rewrite makes: it computes the same outputs, in order, though maybe under other names.
    
        Raises:
            ScheduleError: the rewrite does not apply there.
            UnknownName: no rewrite has this name.
    """
def graph_rows() -> list[tuple[str, str, bool]]:
    """
    (name, statement, whether it is exact over the reals alone) of each rewrite of graphs.
    """
def graph_sites(graph: Graph, row: str) -> list[GraphSite]:
    """
    Where a rewrite applies.
    """
def guessed_seconds(program: Program, machine: MachineModel, *, constants: collections.abc.Sequence[str] = [], element_bytes: typing.SupportsInt | typing.SupportsIndex = 4) -> float:
    """
        Seconds of a call of a concrete program, as the search among equivalent ones guesses them: without a schedule.
    
        Args:
            constants: inputs that stay the same over calls: what depends on them alone costs nothing.
            element_bytes: 2, 4 or 8.
        Raises:
            ShapeError: elements of another size.
            UnknownName: no such input.
    """
def hash_bytes(bytes: typing_extensions.Buffer) -> str:
    """
    XXH3 of memory, 128 bits as 32 hexadecimal digits: against damage, not against people.
    """
def host_cpu() -> Cpu:
    """
        This machine's CPU, or the one that the environment variable ``SYNO_CPU`` names.
    
        Raises:
            UnknownName: ``SYNO_CPU`` names no CPU.
    """
def laid_out(program: Program, tensor: str, layout: str, copy: str = '') -> Program:
    """
        The program of which a tensor lies in another layout: what `Graph.lay_out` makes of the programs of a graph.
    
        Args:
            copy: of an input or output, a copy of this name lies so, and the caller's memory stays as it is.
        Raises:
            ScheduleError: a step does not fit its shape.
            ShapeError: the program has size variables.
            ParseError, UnknownName: a text that is no layout, a name that no tensor or primitive has.
    
        Example:
            >>> from syno._core import Program, laid_out
            >>> program = Program.parse("y[i] = sum[c] x[i,c]", shapes={"x": [2, 4]})
            >>> print(laid_out(program, "x", "split(1, 2, 2) reorder(1, 0, 2)").short_text())
            y[i] = sum[c,cm] x[c,i,cm]
    """
def lay_out_decision(tensor: str, layout: str, copy: str) -> Schedule:
    """
        A schedule of one decision, ``lay_out``, after which a program is ``laid_out(program, tensor, layout, copy)``.
    
        Raises:
            ParseError, UnknownName: a text that is no layout.
    
        Example:
            >>> from syno._core import lay_out_decision
            >>> print(lay_out_decision("x", "split(1, 2, 2) reorder(1, 0, 2)", "x_l").text().splitlines()[1])
            lay_out x_l tensor=x numbers=1,2,2,1,0,2 words=split:3,reorder:3
    """
def layer_norm(*, shape: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], normalized_dims: typing.SupportsInt | typing.SupportsIndex = 1, epsilon: typing.SupportsFloat | typing.SupportsIndex = 1e-05, affine: bool = True) -> Program:
    """
        Layer normalisation of ``x`` over its last ``normalized_dims`` dimensions.
    
        With ``affine`` it has weights ``gamma`` and ``beta`` of the normalised shape. ``epsilon`` is kept as the exact
        decimal that it prints as.
    
        Raises:
            ShapeError: no such dimensions, or an epsilon that is no such decimal.
    """
def live_ends(program: Program) -> str:
    """
    What tells a program of `with_live_ends` from the one of the largest sizes, as text; empty for others.
    """
def llvm_version() -> str:
    """
    Version of the LLVM that generates code, as text.
    """
def matmul(*, m: typing.SupportsInt | typing.SupportsIndex, n: typing.SupportsInt | typing.SupportsIndex, k: typing.SupportsInt | typing.SupportsIndex, batch: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [], transpose_a: bool = False, transpose_b: bool = False) -> Program:
    """
        ``y[*batch, m, n] = sum_k a[*batch, m, k] * b[*batch, k, n]``; ``b`` is the weight.
    
        Args:
            batch: leading extents of both operands.
            transpose_a, transpose_b: whether the operand's last two dimensions are swapped.
        Raises:
            ShapeError: an extent below 1.
    """
def measure_machine(cpu: Cpu | None = None) -> MachineModel:
    """
        This machine with its rates measured by micro-benchmarks of generated code on one core: about ten seconds.
    
        Args:
            cpu: of ``cpu_named``: what code is generated for; default ``host_cpu()``.
    """
def measure_schedules(program: Program, schedules: collections.abc.Sequence[Schedule], options: MeasureOptions) -> list[Measured]:
    """
        Compile in parallel, then verify and time one after the other, each in a child process.
    
        Args:
            program: a concrete one.
            schedules: the candidates.
            options: threads, limits, samples.
        Returns:
            One `Measured` a candidate, in order.
        Raises:
            KernelError: threads, samples or limit_s out of range.
    """
def merge_dims(program: Program, pairs: collections.abc.Sequence[tuple[str, typing.SupportsInt | typing.SupportsIndex]], extent: typing.SupportsInt | typing.SupportsIndex | None = None) -> Program:
    """
        The program with dimensions that `mergeable` gave and those behind them made one.
    
        Args:
            extent: of all that are merged; default the product of two.
        Raises:
            ShapeError: there is no such dimension, it is not mergeable, or the extent is below 1.
    """
def mergeable(program: Program, wanted: collections.abc.Sequence[tuple[str, typing.SupportsInt | typing.SupportsIndex]]) -> list[tuple[str, int]]:
    """
        Of (tensor, dimension), those that a concrete program only walks together with the dimension behind.
    
        Raises:
            ShapeError: there is no such dimension.
    """
def moves_with(program: Program) -> dict[str, str]:
    """
    Tensors within a program that are elementwise of an output, or else of an input: by that one's name.
    """
def named_operator(name: str, spec: Spec, sizes: collections.abc.Mapping[str, str] = {}) -> PGraph:
    """
        Build an operator people know as a sequence of primitives, for a spec's signature.
    
        Args:
            name: one of :func:`named_operators`.
            spec: its signature says which dimensions are batch (fixed), channels (unordered) and spatial.
            sizes: ``kernel`` (3), ``groups`` (2), ``dilation`` (2), ``shrink`` (2) and ``block`` (2) as sizes over the
                spec's variables, such as ``{"kernel": "k", "groups": "g"}``.
        Raises:
            UnknownName: no such operator, parameter or variable.
            SpecError: the signature does not fit the operator, saying which dimension.
        Source:
            Syno, Table 2, Fig. 3 and Figs. 8 and 9.
    """
def named_operators() -> dict[str, str]:
    """
    Names and descriptions of the operators that :func:`named_operator` builds (Syno, Table 2 and Fig. 8).
    """
def nest_features(nest: LoopNest, machine: MachineModel, *, threads: typing.SupportsInt | typing.SupportsIndex = 1) -> list[float]:
    """
    What a learned cost model sees of a nest: logarithms of counts, in the order of ``feature_names()``.
    """
def part_digests(bytes: typing_extensions.Buffer, size: typing.SupportsInt | typing.SupportsIndex) -> bytes:
    """
        A digest of each part of a buffer (BLAKE3), 16 bytes each, one after the other.
    
        Args:
            bytes: ``bytes``, a ``bytearray``, or a ``memoryview`` of one.
            size: bytes of a part; the last one may be shorter.
        Raises:
            ShapeError: not contiguous, or no bytes, or parts of nothing.
    """
def plan_memory(items: collections.abc.Sequence[tuple[typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex, typing.SupportsInt | typing.SupportsIndex]]) -> tuple[list[int], int, int]:
    """
        Offsets in one arena of items that live from one step to another.
    
        Args:
            items: (bytes, first step, last step) of each.
        Returns:
            The offsets, the bytes of the arena, and those of the items that live at one step at most.
        Raises:
            ShapeError: fewer than 0 bytes, or an end before the beginning.
    """
def pool(kind: str, *, batch: typing.SupportsInt | typing.SupportsIndex = 1, channels: typing.SupportsInt | typing.SupportsIndex, in_size: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], kernel: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], stride: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [], dilation: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [], pad_begin: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [], pad_end: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex] = [], count_include_pad: bool = True) -> Program:
    """
        Pooling of any rank over ``x`` (batch, channels, *in_size).
    
        Args:
            kind: ``"max"`` (what is outside counts as minus infinity) or ``"average"``.
            stride: per spatial dimension; empty for the kernel's extents.
            count_include_pad: average divides by the kernel's size; otherwise by the number of elements inside.
        Raises:
            ShapeError: attributes that do not fit together.
            UnknownName: another kind.
    """
def predict_nest(nest: LoopNest, machine: MachineModel, *, threads: typing.SupportsInt | typing.SupportsIndex = 1, cold: bool = False, near: collections.abc.Sequence[str] | None = None, far: typing.SupportsInt | typing.SupportsIndex | None = None) -> Prediction:
    """
        Predict the time of a loop nest from the machine model alone.
    
        Args:
            nest: what a schedule makes of a program.
            machine: the model, of this machine or another.
            threads: of a call.
            cold: arguments come from main memory instead of the nearest level that holds them.
            near: names of the inputs that do not come from ``far``, where the others do; default: as ``cold`` says.
            far: an index of the machine's levels; default main memory.
        Raises:
            UnknownName: no input has one of the names.
    """
def rewrite(program: Program, name: str, site: RewriteSite) -> Program:
    """
        The program that a rewrite makes: the same inputs and outputs, the same values.
    
        Raises:
            ScheduleError: the rewrite does not apply there.
            UnknownName: no rewrite has this name.
    """
def rewrite_rows() -> list[tuple[str, str, bool, bool]]:
    """
    (name, statement, exact, finishes) of each rewrite. Not exact: equal over the reals only; finishes: it says where results lie, and is the last step of a derivation.
    """
def rewrite_sites(program: Program, name: str) -> list[RewriteSite]:
    """
    Where a rewrite applies to a concrete program.
    """
def roughness(program: Program) -> float:
    """
    About how many times the rounding errors of a plain sum of products a concrete program makes, by the constant matrices in it: 1 without any.
    """
def rules() -> list:
    """
        The canonicality rules (Syno, section 6), each a dict of ``name``, ``class`` (``exact``, ``similar``, ``futile`` or ``limit``),
        ``statement`` and ``looks_at`` (a primitive, or ``finished``). A spec's ``disabled_rules`` switches them off by name.
    """
def run_on_openmp(parallel: typing.SupportsInt | typing.SupportsIndex, thread_number: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
        Run kernels on the threads of an OpenMP runtime of this process, those that another library computes on.
    
        Args:
            parallel: address of libgomp's ``GOMP_parallel``; 0: kernels run on a pool of their own again.
            thread_number: address of its ``omp_get_thread_num``.
    """
def sample_operators(spec: Spec, *, n: typing.SupportsInt | typing.SupportsIndex, seed: typing.SupportsInt | typing.SupportsIndex, threads: typing.SupportsInt | typing.SupportsIndex = 1, max_steps: typing.SupportsInt | typing.SupportsIndex = 0, min_steps: typing.SupportsInt | typing.SupportsIndex = 0, seconds: typing.SupportsFloat | typing.SupportsIndex = 0.0, patience: typing.SupportsInt | typing.SupportsIndex = 300000, effort: typing.SupportsInt | typing.SupportsIndex = 0, least: typing.SupportsInt | typing.SupportsIndex = 1) -> list[PGraph]:
    """
        Up to ``n`` different random operators of a spec; fewer when there are no more, when none was met for long, or when
        time is up.
    
        Operators of few steps are enumerated first; random walks then start from the first steps of a known operator and
        go on to one of ``min_steps`` to ``max_steps`` steps. None comes twice, and all come in the end. The sample is not
        uniform: each number of steps gets the same effort, not the same number of operators, and operators that begin
        like many known ones are likelier to come early.
    
        Args:
            spec: what the operators are for, and what they may be.
            seed: the same seed gives the same operators, whatever ``threads`` is.
            max_steps: 0 for the spec's own limit.
            min_steps: least number of steps.
            seconds: draw no further after so many; 0 for no limit. What came until then is the beginning of the sample
                without a limit.
            patience: partial operators to look at without meeting a new operator before giving up.
            effort: partial operators to look at in all before no further one is drawn; 0 for no limit. Unlike ``seconds`` it
                gives the same operators on every machine.
            least: operators that are drawn whatever effort that takes.
        Raises:
            SpecError: ``min_steps`` exceeds ``max_steps``, or ``seconds`` is negative.
    """
def search_derivations(program: Program, machine: MachineModel, *, rules: collections.abc.Sequence[str] = [], constants: collections.abc.Sequence[str] = [], reassociating: bool = True, depth: typing.SupportsInt | typing.SupportsIndex = 0, seconds: typing.SupportsFloat | typing.SupportsIndex = 2.0, states: typing.SupportsInt | typing.SupportsIndex = 0, growth: typing.SupportsFloat | typing.SupportsIndex = 4.0, roughness: typing.SupportsFloat | typing.SupportsIndex = 0.0, keep: typing.SupportsInt | typing.SupportsIndex = 16, element_bytes: typing.SupportsInt | typing.SupportsIndex = 4, workers: typing.SupportsInt | typing.SupportsIndex = 1, watch: typing.Any = None) -> DerivationSearch:
    """
        Search programs equal to a concrete one; Ctrl-C returns what there is.
    
        Args:
            rules: names of rewrites; default all.
            constants: inputs that stay the same over calls.
            reassociating: rewrites that are equal over the reals only, too.
            depth: most steps; 0: any number.
            seconds: 0: until nothing is left.
            states: most different programs; 0: any number.
            growth: most bytes of constants, times those given.
            roughness: most times the rounding errors of a plain sum of products; 0: any.
            keep: most programs that come back, beside some of every accuracy.
            workers: threads of the search; what is found is the same for any number of them.
            watch: called with (states, seconds, guessed seconds of the best); False stops the search.
    """
def search_einnet(program: Program, machine: MachineModel, *, target: str = 'any', constants: collections.abc.Sequence[str] = [], depth: typing.SupportsInt | typing.SupportsIndex = 7, converging: typing.SupportsInt | typing.SupportsIndex = 0, seconds: typing.SupportsFloat | typing.SupportsIndex = 0.0, states: typing.SupportsInt | typing.SupportsIndex = 0, bytes: typing.SupportsInt | typing.SupportsIndex = 8589934592, key: bool = True, keep: typing.SupportsInt | typing.SupportsIndex = 16, element_bytes: typing.SupportsInt | typing.SupportsIndex = 4, watch: typing.Any = None) -> EinnetSearch:
    """
        Every program that EINNET's rules make of a sum of products in so many steps; Ctrl-C returns what there is.
    
        Args:
            target: the operator of a library that is looked for: "matmul", "bmm", "conv", "g2bmm", with attributes
                as "conv:kernel=3x3", or "any".
            constants: inputs that stay the same over calls.
            depth: most steps of any kind.
            converging: from there on steps that each come nearer to the target are taken, too, where at most so many
                iterators keep a program from being it (paper, section 5.2; its code has 2). 0: none.
            seconds: 0: as long as it takes.
            states: most states; 0: any number.
            bytes: most memory for states.
            key: False: a program is looked at each time it is made.
            keep: most programs that come back.
            watch: called with (states, seconds, guessed seconds of the original); False stops the search.
    
        Raises:
            ScheduleError: no scope is a sum of products of elements.
            UnknownName: no such target, or attribute of it.
    """
def set_cache_secret(secret: bytes) -> None:
    """
        The secret under which compiled objects are written to and read from cache directories; until it is set, one of
        this process alone.
    
        Args:
            secret: 32 bytes.
        Raises:
            KernelError: of another length.
    """
def simulate_caches(nest: LoopNest, machine: MachineModel, *, lines_per_miss: typing.SupportsInt | typing.SupportsIndex = 1) -> CacheTraffic:
    """
        Count what a loop nest asks of caches by running through its accesses, one after the other.
    
        Caches are those of the machine, each for this core alone, empty at the beginning, set-associative, replacing what was used
        longest ago; a store reads its line first. So is the TLB, of pages. It takes some fifty nanoseconds an element that is read or written.
    
        Args:
            nest: what a schedule makes of a program, without parameters.
            machine: the model, of this machine or another.
            lines_per_miss: lines that a miss of the first cache brings, itself and those behind it; 1 to 1024. The ALT paper (5.1)
                sees four on a Cortex-A76.
        Raises:
            ShapeError: the nest has parameters, or ``lines_per_miss`` is out of range.
    """
def slides(program: Program) -> bool:
    """
    Whether a sum of products reads at sums of iterators, as windows and bands do.
    """
def softmax(*, shape: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], dim: typing.SupportsInt | typing.SupportsIndex) -> Program:
    """
        Softmax of ``x`` along ``dim`` (from 0), computed with the greatest element subtracted; output ``y``.
    
        Raises:
            ShapeError: no such dimension.
    """
def source_digest() -> str:
    """
    A digest of the C++ sources that this engine was built from.
    """
def spec_named(name: str) -> Spec:
    """
        A spec of the paper's experiments (``resnet18``, ``test``, ``simple``, ``vit``, ``resnext``, ``gpt2``) or ``conv``,
        the 3x3 convolutions of a small residual network for 28x28 images.
    
        Args:
            name: one of ``spec_names()``.
        Raises:
            UnknownName: no such spec.
    """
def spec_names() -> list[str]:
    """
    The names :func:`spec_named` knows.
    """
def sums_of_products(program: Program) -> list:
    """
        The scopes of a concrete program that sum products, each as (output, iterators, iterators of the sum, factors).
    
        Iterators are (name, begin, end); a factor is (tensor, its indices), an index (terms, constant, whether it is affine),
        a term (iterator, coefficient), 0 where the iterator moves it in another way.
    
        Raises:
            ShapeError: the program has size variables.
    
        Example:
            >>> from syno._core import Program, sums_of_products
            >>> program = Program.parse("y[i] = sum[r] x[2*i+r-1] * k[r]", shapes={"x": [8], "k": [3]}, sizes={"i": 4})
            >>> sums_of_products(program)[0][3][0]
            ('x', [([('i', 2), ('r', 1)], -1, True)])
    """
def trace_mutations() -> list[tuple[str, str]]:
    """
    (name, meaning) of every way to change a trace in place.
    """
def verify_at_sizes(prepack: Kernel | None, calls: collections.abc.Sequence[Kernel], programs: collections.abc.Sequence[Program], seed: typing.SupportsInt | typing.SupportsIndex = 0, random_points: typing.SupportsInt | typing.SupportsIndex = 256) -> list[Verification]:
    """
        Compares kernels of a program for several sizes with its interpreter, as `Kernel.verify` does, until one does not pass.
        What has one shape at all sizes, as weights have, is drawn and packed once.
    
        Args:
            prepack: of `apply_prepacked`, what packs constants for all of them; None where there is no such kernel.
            calls: a kernel for each size, such as `Kernel.at` gives.
            programs: what each should compute.
            seed: of the inputs and the random points.
            random_points: of each.
        Returns:
            As many as were compared, each as `Kernel.verify` gives it.
        Raises:
            ShapeError: there are not as many programs as kernels.
            KernelError: a program's inputs and outputs are not the kernels'.
    """
def verify_elsewhere(program: Program, nest: LoopNest, run: collections.abc.Callable, seed: typing.SupportsInt | typing.SupportsIndex = 0) -> Verification:
    """
        Compares what computes a program elsewhere, on a GPU for example, with its interpreter, as `Kernel.verify` does.
    
        Args:
            nest: of the same program; says which dtype the arguments have and where to look closely.
            run: gets a list of the inputs as float64 arrays, whose values the dtype holds, and returns a list of the outputs
                as float64 arrays.
        Raises:
            KernelError: the program's inputs and outputs are not the nest's.
            ShapeError: an output has another shape.
    """
def verify_prepacked(prepack: Kernel, call: Kernel, program: Program, seed: typing.SupportsInt | typing.SupportsIndex = 0, random_points: typing.SupportsInt | typing.SupportsIndex = 256) -> Verification:
    """
        Compares the two kernels of `apply_prepacked`, one after the other, with the program's interpreter, as
        `Kernel.verify` does.
    
        Raises:
            KernelError: the program's inputs and outputs are not the kernels'.
    """
def warm_workspace(bytes: typing.SupportsInt | typing.SupportsIndex) -> None:
    """
        Reads so much of the memory that the calling thread keeps for kernels' temporaries: it lies in the caches then, as
        between the kernels of a network, which all use the same.
    
        Args:
            bytes: as of `Kernel.workspace_bytes`; what there is of them is read.
    """
def why_empty(spec: Spec, *, max_steps: typing.SupportsInt | typing.SupportsIndex = 0, most_children: typing.SupportsInt | typing.SupportsIndex = 20000000) -> str | None:
    """
        Why a spec has no operator of at most ``max_steps`` steps (0: its own limit), or None where it has one.
    
        Names every limit whose change alone lets operators in, with its value and the nearest one that works. About
        ``most_children`` steps are looked at; the sentence says how far that went. Ctrl-C ends it within moments.
    
        Raises:
            SpecError: the spec contradicts itself.
    """
def with_live_ends(instances: collections.abc.Sequence[tuple[collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex], Program]], names: collections.abc.Sequence[str]) -> Program:
    """
        A program whose extents calls may bring along, from what it is at some sizes.
    
        Args:
            instances: (sizes, the concrete program at them), the largest sizes first.
            names: of the sizes.
        Returns:
            The first program, with ends of ranges that follow the sizes: for `apply_schedule`.
        Raises:
            ShapeError: the programs differ in more than ends of ranges, or an end is no (a * size + b) / c of one size.
    """
def without_copies(program: Program) -> Program:
    """
    The program with scopes that only copy in the place of their reads.
    """
MOST_STEPS: int = 18
