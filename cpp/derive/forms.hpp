// derive/forms.hpp — the affine forms that the indices of a body consist of.
#pragma once

#include <functional>
#include <vector>

#include "derive/names.hpp"
#include "symbolic/affine.hpp"

namespace syno::derive {

using Affine = symbolic::AffineForm<ExprId>;

/// Visits the indices of a body, and in them the operands of quotients, remainders and guards: each an affine
/// form, with what it is divided by, 1 where it is not.
void over_forms(const Program& program, ScalarId body,
                const std::function<void(const Affine& form, std::int64_t divisor)>& visit);

/// Visits what an index is made of, itself first.
void over_nodes(const symbolic::Arena& arena, ExprId index,
                const std::function<void(const symbolic::Expr& node)>& visit);

/// All of them, as they come.
struct DividedForm {
  Affine form;
  std::int64_t divisor = 1;
};
std::vector<DividedForm> forms_in(const Program& program, ScalarId body);

/// Whether another one of some iterators stands in an index where i does.
bool meets(const Program& program, const std::vector<DividedForm>& indices, const Iterator& i,
           const std::vector<Iterator>& others);

/// Factors that indices suggest to cut i by: strides and dilations that other iterators have where i stands,
/// and what sums with it are divided by.
std::vector<std::int64_t> suggested_factors(const Program& program, const std::vector<DividedForm>& indices,
                                            const Iterator& i);

/// Whether a sum multiplies what it reads and reads at sums of iterators: a window that slides, a band of a
/// product. Other sums of products have no equal program with fewer multiply-adds but Strassen's.
bool slides(const Program& program);

/// How much a form grows with an iterator, beside what its quotients, remainders and guards do.
std::int64_t coefficient_in(const symbolic::Arena& arena, const Affine& form, std::uint32_t slot);

}  // namespace syno::derive
