#include "derive/forms.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace syno::derive {

namespace {

void over_index(const symbolic::Arena& arena, ExprId e, std::int64_t divisor,
                const std::function<void(const Affine&, std::int64_t)>& visit) {
  const Affine form = symbolic::affine_form(arena, e);
  visit(form, divisor);
  for (const auto& [atom, coefficient] : form.terms) {
    const symbolic::Expr& node = arena[atom];
    if (node.op == Op::Divide || node.op == Op::Modulo)
      over_index(arena, node.a, symbolic::integer_of(arena, node.size), visit);
    else if (node.op == Op::Inside)
      over_index(arena, node.a, 1, visit);
  }
}

}  // namespace

void over_forms(const Program& program, ScalarId body,
                const std::function<void(const Affine&, std::int64_t)>& visit) {
  for (const ScalarId id : program::scalars_of(program, body))
    program::over_indices(program.scalar(id),
                          [&](ExprId index) { over_index(program.arena, index, 1, visit); });
}

void over_nodes(const symbolic::Arena& arena, ExprId index,
                const std::function<void(const symbolic::Expr&)>& visit) {
  const symbolic::Expr& node = arena[index];
  visit(node);
  if (node.op == Op::Iterator || node.op == Op::Constant || node.op == Op::SizeValue) return;
  over_nodes(arena, node.a, visit);
  if (node.op == Op::Add) over_nodes(arena, node.b, visit);
}

std::vector<DividedForm> forms_in(const Program& program, ScalarId body) {
  std::vector<DividedForm> forms;
  over_forms(program, body,
             [&](const Affine& form, std::int64_t divisor) { forms.push_back({form, divisor}); });
  return forms;
}

std::int64_t coefficient_in(const symbolic::Arena& arena, const Affine& form, std::uint32_t slot) {
  for (const auto& [atom, coefficient] : form.terms)
    if (symbolic::slot_of(arena, atom) == slot) return coefficient;
  return 0;
}

bool meets(const Program& program, const std::vector<DividedForm>& indices, const Iterator& i,
           const std::vector<Iterator>& others) {
  return std::any_of(indices.begin(), indices.end(), [&](const DividedForm& index) {
    return coefficient_in(program.arena, index.form, i.slot) != 0 &&
           std::any_of(others.begin(), others.end(), [&](const Iterator& other) {
             return other.slot != i.slot && coefficient_in(program.arena, index.form, other.slot) != 0;
           });
  });
}

std::vector<std::int64_t> suggested_factors(const Program& program, const std::vector<DividedForm>& indices,
                                            const Iterator& i) {
  std::vector<std::int64_t> factors;
  const auto& arena = program.arena;
  const auto suggest = [&](std::int64_t a, std::int64_t whole) {
    if (a != 0 && whole != 0) factors.push_back(std::abs(whole) / std::gcd(a, whole));
  };
  for (const auto& [form, divisor] : indices) {
    const std::int64_t a = coefficient_in(arena, form, i.slot);
    if (a == 0) continue;
    suggest(a, divisor);
    for (const auto& [atom, coefficient] : form.terms)
      if (symbolic::slot_of(arena, atom) != i.slot) suggest(a, coefficient);
  }
  return factors;
}

bool slides(const Program& program) {
  return std::any_of(program.scopes.begin(), program.scopes.end(), [&](const Scope& scope) {
    const std::vector<ScalarId> scalars = program::scalars_of(program, scope.body);
    const auto reads = std::count_if(scalars.begin(), scalars.end(), [&](ScalarId id) {
      return program.scalar(id).kind == ScalarKind::Read;
    });
    if (scope.sums.empty() || reads < 2) return false;
    const std::vector<DividedForm> indices = forms_in(program, scope.body);
    return std::any_of(indices.begin(), indices.end(), [&](const DividedForm& index) {
      const auto iterators =
          std::count_if(index.form.terms.begin(), index.form.terms.end(), [&](const auto& term) {
            return symbolic::slot_of(program.arena, term.first) != symbolic::kNoSlot;
          });
      return iterators > 1;
    });
  });
}

}  // namespace syno::derive
