// nest/affine.hpp — index expressions of a loop nest as affine forms: a sum of loop variables
// and of quotients and remainders, each times an integer. What verification and code generation reason with.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "nest/loop_nest.hpp"
#include "symbolic/affine.hpp"

namespace syno::nest {

/// So small that sums of bounds of forms fit 64 bits: ScheduleError beyond.
struct SmallCoefficients {
  static constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max() / 4;
  static std::int64_t add(std::int64_t a, std::int64_t b) {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(a, b, &sum) || sum > kLargest || sum < -kLargest) fail_overflow("+", a, b);
    return sum;
  }
  static std::int64_t multiply(std::int64_t a, std::int64_t b) {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product) || product > kLargest || product < -kLargest)
      fail_overflow("*", a, b);
    return product;
  }
  [[noreturn]] static void fail_overflow(const char* operation, std::int64_t a, std::int64_t b);
};

/// Over atoms by their numbers in AffineForms.
using AffineForm = symbolic::AffineForm<std::uint32_t, SmallCoefficients>;
using symbolic::add;
using symbolic::multiply;
using symbolic::with_constant;

/// What an affine form is made of: a loop variable, floor(inner / divisor), inner mod divisor, or inner times
/// what slot holds, which no loop changes: a stride known at run time.
struct Atom {
  enum class Kind : std::uint8_t { Slot, Quotient, Remainder, Product } kind = Kind::Slot;
  std::uint32_t slot = 0;
  AffineForm inner;
  std::int64_t divisor = 1;
  auto operator<=>(const Atom&) const = default;
};

/// Inclusive.
using symbolic::Interval;

/// `form` lies in [least, greatest]: what an If or the guards of a load say.
struct Fact {
  AffineForm form;
  Interval interval;
};

/// Makes affine forms under an environment of loop variables. Quotients and remainders are simplified by what
/// is known of the ranges: (16*i + v) / 16 is i for 0 <= v < 16, 16 * (f / 16) + f % 16 is f, and
/// (8*i + v) % 56 is 8 * (i % 7) + v for 0 <= v < 8.
class AffineForms {
 public:
  /// What a loop variable is now: its own atom, a constant once unrolled, or any form of other variables.
  void bind(std::uint32_t slot, Interval range);
  void bind_constant(std::uint32_t slot, std::int64_t value);
  void bind_form(std::uint32_t slot, AffineForm form);  ///< of slots that are bound already
  bool bound(std::uint32_t slot) const { return slot < bindings_.size() && bindings_[slot].bound; }
  void unbind(std::uint32_t slot);

  /// The same of a parameter of the nest: facts that hold it are used for longer forms, too.
  void bind_parameter(std::uint32_t slot, Interval range);

  /// Facts hold until pop_facts() is given the count that was before.
  std::size_t fact_count() const { return facts_.size(); }
  void push_fact(const AffineForm& form, Interval interval) { facts_.push_back({form, interval}); }
  void pop_facts(std::size_t count) { facts_.resize(count); }

  /// begin <= slot < end, of a loop inside whose bounds parameters stand.
  void push_loop_facts(std::uint32_t slot, const AffineForm& begin, const AffineForm& end);

  /// Whether some fact cannot hold whatever the variables are: then what is asked about never happens.
  bool contradictory() const;

  AffineForm form(const symbolic::Arena& arena, ExprId expr);
  AffineForm slot_form(std::uint32_t slot);
  /// floor(form / divisor) and form mod divisor, simplified.
  AffineForm quotient(const AffineForm& form, std::int64_t divisor);
  AffineForm remainder(const AffineForm& form, std::int64_t divisor);
  AffineForm joined(AffineForm form);                                 ///< m*(x/m) + x%m -> x
  AffineForm times_slot(const AffineForm& form, std::uint32_t slot);  ///< the slot's value is no form's
  /// Replaces one atom of a slot by a constant everywhere, also inside quotients and remainders.
  AffineForm substitute(const AffineForm& form, std::uint32_t slot, std::int64_t value);
  bool depends_on(const AffineForm& form, std::uint32_t slot) const;
  /// Whether a slot may stand in both.
  bool share(const AffineForm& a, const AffineForm& b) const;
  /// Coefficient of a slot where it occurs linearly; `linear` is false when a quotient or remainder holds it
  /// too.
  std::int64_t coefficient(const AffineForm& form, std::uint32_t slot, bool* linear) const;

  /// The same by facts that say what something is: 16 * i + v - n is v - 5 where n - 16 * i is 5.
  AffineForm settled(AffineForm form) const;
  /// Never narrower than the truth.
  Interval bounds(const AffineForm& form) const;
  Interval bounds_without_facts(const AffineForm& form) const;
  const Atom& atom(std::uint32_t id) const { return atoms_[id]; }

 private:
  struct Binding {
    bool bound = false;
    bool aliased = false;
    std::uint32_t alias = 0;  ///< position in aliases_ + 1, 0: it never had one
    Interval range;
  };
  /// `form` as size * blocks + within, 0 <= within < size, for a size that divides `divisor`: then dividing
  /// is the blocks' affair alone, (8*i + j) % 56 is 8 * (i % 7) + j for 0 <= j < 8.
  struct Blocks {
    AffineForm form, within;
    std::int64_t size = 1;
  };
  std::optional<Blocks> whole_blocks(const AffineForm& form, std::int64_t divisor) const;
  std::uint32_t intern(Atom atom);
  Interval sum_of_bounds(const AffineForm& form, bool use_facts) const;
  Interval bounds(const AffineForm& form, bool use_facts) const;
  Interval bounds_by_parts(const AffineForm& form, Interval range) const;
  Interval bounds_by_quotient(const AffineForm& form, Interval range) const;
  std::vector<Atom> atoms_;
  std::map<Atom, std::uint32_t> ids_;      ///< of quotients and remainders
  std::vector<std::uint32_t> slot_atoms_;  ///< by slot: its atom + 1, 0: none yet
  std::vector<Binding> bindings_;          ///< by slot
  std::vector<AffineForm> aliases_;
  std::vector<Fact> facts_;
  std::vector<std::uint32_t> parameters_;  ///< slots
};

}  // namespace syno::nest
