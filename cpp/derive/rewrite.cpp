#include "derive/rewrite.hpp"

#include <algorithm>
#include <array>

#include "derive/tools.hpp"
#include "support/error.hpp"

namespace syno::derive {

namespace {

constexpr std::array kRewrites{
    Rewrite{
        "factor",
        "y[i] = sum[r] f(i) * g(i,r) is t[i] = sum[r] g(i,r); y[i] = f(i) * t[i]: sums and means are linear",
        find_factors, take_out_factors, true, true},
    Rewrite{"inline",
            "a scope without a reduction takes the place of its reads: what is read is what it computes",
            find_inlinable, inline_scope, true, true},
    Rewrite{"share",
            "an elementary function that two scopes compute of the same values is a scope that both read",
            find_shares, share, true, true},
    Rewrite{
        "solve",
        "a sum of which only terms with (a*r + e) % m = 0 are not zero runs over those: r = m*r' + first(e); "
        "of x[r-e], where x is one element long, r = e is left",
        find_solvable, solve, true, true},
    Rewrite{"turn", "y[w] = f((w+a) % m) is t[u] = f(u); y[w] = t[(w+a) % m]: w -> (w+a) % m is one to one",
            find_turns, turn, true, true},
    Rewrite{"polyphase",
            "y[i] = f((i+a)/m, (i+a)%m) is t[z,q] = f(q,z); y[i] = t[(i+a)%m,(i+a)/m]: a channel for each "
            "place in "
            "a block",
            find_polyphases, polyphase, true, true},
    Rewrite{
        "split_sum",
        "y[i] = sum[r,c] f(i,r,c) is t[r,i] = sum[c] f(i,r,c); y[i] = sum[r] t[r,i]: sums are associative",
        find_sum_splits, split_sum},
    Rewrite{"merge_sum",
            "t[i,r] = sum[c] f(i,r,c); y[i] = sum[r] t[i,r] * g(i,r) is y[i] = sum[r,c] f(i,r,c) * g(i,r)",
            find_sum_merges, merge_sum},
    Rewrite{
        "one_scope",
        "t[i,r] = sum[c] f(i,r,c); y[i] = sum[r] t[i,r] * g(i,r), and whatever t is made of, is one sum of "
        "products",
        find_one_scope, put_into_one_scope},
    Rewrite{
        "split_remainders",
        "y[i] = sum[r: 3] x[2*i+r] * k[r] is t[i] = sum[q: 2] x[2*i+2*q] * k[2*q]; u[i] = x[2*i+1] * k[1]; "
        "y[i] = t[i] + u[i]: each remainder of r by the stride alone",
        find_remainders, split_remainders},
    Rewrite{"substitute",
            "t[i,r] = f(a*i+b*r,r), read at t[i,r], is t[u,r] = f(u,r), read at t[a*i+b*r,r]: of u there are "
            "fewer than of (i,r)",
            find_substitutions, substitute},
    Rewrite{"split_iterator",
            "t[i] = f(i) is t[q,p] = f(m*q+p), read at t[i/m,i%m]; y = sum[r] f(r) is y = sum[q,p] f(m*q+p)",
            find_splits, split_iterator},
    Rewrite{"merge_iterators",
            "t[q,p] = f(q,p) is t[z] = f(z/m,z%m), read at t[m*q+p]; y = sum[q,p] f(q,p) is y = sum[z] "
            "f(z/m,z%m)",
            find_merges, merge_iterators},
    Rewrite{"tighten",
            "t[i: -1..n+1] = x[i] * k, 0 outside of x, is t[i: n] = x[i] * k: what is read outside is 0, too",
            find_tightenings, tighten, true, true},
    Rewrite{"relax",
            "y = sum[r: 5] x[r] * k[r], 0 outside of k, is y = sum[r: 6] x[r] * k[r]: terms that are 0 come "
            "to it",
            find_relaxations, relax},
    Rewrite{
        "toom_cook",
        "y[i] = sum[r: n] x[i+r] * k[r] is y[i] = sum[p] A[i%m,p] * ((sum[r] G[p,r] * k[r]) * (sum[a] B[p,a] "
        "* x[m*(i/m)+a])): polynomials multiplied by their values at m+n-1 points",
        find_toom_cook, toom_cook, false, false, false, toom_cook_leaves, toom_cook_growth},
    Rewrite{
        "strassen",
        "y[i,j] = sum[k] a[i,k] * b[k,j], in blocks two by two, is made of seven products of sums of blocks",
        find_strassen, strassen, false, false, false, nullptr, strassen_growth},
    Rewrite{
        "operand",
        "y[i] = sum[r] x[2*i+r] * k[r] is t[i,r] = x[2*i+r]; y[i] = sum[r] t[i,r] * k[r]: what is read is "
        "copied as it is read",
        find_operands, lay_out_operand},
    Rewrite{
        "split_range",
        "y[i: 7] = sum[r] f(i,r) is t[i: 4] = sum[r] f(i,r); u[i: 4..7] = sum[r] f(i,r); y[i] = i < 4 ? t[i] "
        ": u[i]",
        find_range_splits, split_range},
    Rewrite{"reuse", "t[i] = f(i); u[j] = f(j): who reads u reads t", find_reuses, reuse},
    Rewrite{
        "merge_scopes",
        "t[o] = sum[c] x[c] * k[o,c]; u[o] = sum[c] x[c] * l[o,c] is one product with rows for both; without "
        "an x in common, a batch of two",
        find_scope_merges, merge_scopes},
    Rewrite{
        "innermost",
        "t[c,w] = f(c,w), read at t[c,4*w+a], is t[w,c] = f(c,w), read at t[4*w+a,c]: where results lie is "
        "no part of what they are",
        find_innermost, move_innermost, true, false, true},
};

}  // namespace

std::span<const Rewrite> rewrites() { return kRewrites; }

const Rewrite& rewrite_named(std::string_view name) {
  std::vector<std::string> valid;
  for (const Rewrite& row : kRewrites) {
    if (row.name == name) return row;
    valid.emplace_back(row.name);
  }
  throw UnknownName(kWhere, unknown_name("rewrite", name, valid));
}

std::vector<Site> sites(const Rewrite& row, const Program& program) {
  std::vector<Site> all;
  for (std::size_t s = 0; s < program.scopes.size(); ++s)
    for (Site& site : row.find(program, s)) all.push_back(std::move(site));
  return all;
}

std::size_t scope_named(const Program& program, const std::string& tensor) {
  std::vector<std::string> valid;
  for (std::size_t s = 0; s < program.scopes.size(); ++s) {
    if (name_of(program, program.scopes[s]) == tensor) return s;
    valid.push_back(name_of(program, program.scopes[s]));
  }
  throw ScheduleError(kWhere, unknown_name("scope", tensor, valid));
}

const std::string& name_of(const Program& program, const Scope& scope) {
  return program.tensor(scope.output).name;
}

std::pair<std::int64_t, std::int64_t> range_of(const Program& program, const program::Range& range) {
  const auto [begin, end] = program::extent_of(program, range, 0);
  return {begin, end};
}

bool is_output(const Program& program, TensorId tensor) {
  return std::find(program.outputs.begin(), program.outputs.end(), tensor) != program.outputs.end();
}

std::string name_for(const Program& program, const Site& site, const std::string& wanted) {
  if (site.made.empty()) return program::fresh_tensor_name(program, wanted);
  if (program.find_tensor(site.made))
    fail<ScheduleError>(kWhere, "there is a tensor '{}' already", site.made);
  return site.made;
}

}  // namespace syno::derive
