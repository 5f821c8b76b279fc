// derive/tools.hpp — what the rows of rewrites have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "derive/rewrite.hpp"

namespace syno::derive {

constexpr const char* kWhere = "derive";

/// The place of the scope that computes a tensor; ScheduleError lists those there are.
std::size_t scope_named(const Program& program, const std::string& tensor);
const std::string& name_of(const Program& program, const Scope& scope);
/// [begin, end) of a concrete program.
std::pair<std::int64_t, std::int64_t> range_of(const Program& program, const program::Range& range);
bool is_output(const Program& program, TensorId tensor);
/// The name for a tensor that comes into being; ScheduleError where it is taken.
std::string name_for(const Program& program, const Site& site, const std::string& wanted);

// The rows, each in a file of its own.
std::vector<Site> find_factors(const Program& program, std::size_t scope);
void take_out_factors(Program& program, const Site& site);
std::vector<Site> find_inlinable(const Program& program, std::size_t scope);
void inline_scope(Program& program, const Site& site);
std::vector<Site> find_shares(const Program& program, std::size_t scope);
void share(Program& program, const Site& site);
std::vector<Site> find_solvable(const Program& program, std::size_t scope);
void solve(Program& program, const Site& site);
std::vector<Site> find_turns(const Program& program, std::size_t scope);
void turn(Program& program, const Site& site);
std::vector<Site> find_polyphases(const Program& program, std::size_t scope);
void polyphase(Program& program, const Site& site);
std::vector<Site> find_sum_splits(const Program& program, std::size_t scope);
void split_sum(Program& program, const Site& site);
std::vector<Site> find_sum_merges(const Program& program, std::size_t scope);
void merge_sum(Program& program, const Site& site);
std::vector<Site> find_one_scope(const Program& program, std::size_t scope);
void put_into_one_scope(Program& program, const Site& site);
std::vector<Site> find_remainders(const Program& program, std::size_t scope);
void split_remainders(Program& program, const Site& site);
std::vector<Site> find_substitutions(const Program& program, std::size_t scope);
void substitute(Program& program, const Site& site);
std::vector<Site> find_splits(const Program& program, std::size_t scope);
void split_iterator(Program& program, const Site& site);
std::vector<Site> find_merges(const Program& program, std::size_t scope);
void merge_iterators(Program& program, const Site& site);
std::vector<Site> find_toom_cook(const Program& program, std::size_t scope);
void toom_cook(Program& program, const Site& site);
double toom_cook_leaves(const Program& program, std::size_t scope, const Site& site);
double toom_cook_growth(const Site& site);
std::vector<Site> find_tightenings(const Program& program, std::size_t scope);
void tighten(Program& program, const Site& site);
std::vector<Site> find_relaxations(const Program& program, std::size_t scope);
void relax(Program& program, const Site& site);
std::vector<Site> find_strassen(const Program& program, std::size_t scope);
void strassen(Program& program, const Site& site);
double strassen_growth(const Site& site);
std::vector<Site> find_operands(const Program& program, std::size_t scope);
void lay_out_operand(Program& program, const Site& site);
std::vector<Site> find_reuses(const Program& program, std::size_t scope);
void reuse(Program& program, const Site& site);
std::vector<Site> find_scope_merges(const Program& program, std::size_t scope);
void merge_scopes(Program& program, const Site& site);
std::vector<Site> find_range_splits(const Program& program, std::size_t scope);
void split_range(Program& program, const Site& site);
std::vector<Site> find_innermost(const Program& program, std::size_t scope);
void move_innermost(Program& program, const Site& site);

}  // namespace syno::derive
