#include "harness/trainers/core/exact_sum.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "harness/base/json.h"
#include "harness/base/text.h"
#include "harness/trainers/comm/ledger.h"

namespace lockstep {
namespace {

constexpr int kDigitBits = 40;
constexpr int64_t kDigitMask = (int64_t{1} << kDigitBits) - 1;
constexpr int64_t kMostWidth = 54;
__extension__ typedef unsigned __int128 Uint128;
__extension__ typedef __int128 Int128;

template <typename Float>
struct Format;
template <>
struct Format<float> {
  using Bits = uint32_t;
  static constexpr int kFraction = 23, kExponentMask = 0xff, kLowestExponent = -149;
  static constexpr int kTouched = 2;     ///< digits that one number reaches into: 24 + 39 bits
  static constexpr int64_t kWidth = 8;   ///< 277 bits
};
template <>
struct Format<double> {
  using Bits = uint64_t;
  static constexpr int kFraction = 52, kExponentMask = 0x7ff, kLowestExponent = -1074;
  static constexpr int kTouched = 3;
  static constexpr int64_t kWidth = kMostWidth;  // 2,098 bits
};

/// A number as an integer multiple of a power of two. Subnormal numbers stand at the lowest place, as the smallest normal ones do.
template <typename Float>
struct Decoded {
  using F = Format<Float>;
  using Bits = typename F::Bits;

  explicit Decoded(Float value) {
    const Bits bits = std::bit_cast<Bits>(value);
    const auto exponent = static_cast<uint32_t>(bits >> F::kFraction) & F::kExponentMask;
    mantissa = (bits & ((Bits{1} << F::kFraction) - 1)) | (Bits{exponent != 0} << F::kFraction);
    place = exponent != 0 ? exponent - 1 : 0;
    sign = -static_cast<int64_t>(bits >> (8 * sizeof(Bits) - 1));
  }
  Bits mantissa;
  uint32_t place;
  int64_t sign;  ///< 0 or -1
};

/// A block's unit lies this far below its first numbers' largest, and numbers of this far above the unit are taken.
constexpr uint32_t kBelow = 24, kReach = 32;
/// Adding so often to a block's integers leaves 62 bits: 24 + 32 + 6.
constexpr uint8_t kMostAdded = 64;

bool in_reach(uint32_t place, uint32_t unit) { return place - unit <= kReach; }

/// The bits of the largest number, without its sign: they are ordered as numbers are.
__attribute__((target_clones("avx2", "default"))) uint32_t largest_bits(const float* values, int64_t count) {
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, std::bit_cast<uint32_t>(values[i]) & 0x7fffffff);
  return most;
}

/// Adds the numbers that are in reach of the unit. False if there are others.
__attribute__((target_clones("arch=x86-64-v4", "avx2", "default"))) bool add_multiples(const float* values, int64_t count, uint32_t unit,
                                                                     int64_t* sums) {
  uint32_t left_out = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Decoded<float> number(values[i]);
    const uint32_t shift = number.place - unit;
    const uint32_t taken = in_reach(number.place, unit) ? number.mantissa : 0;
    const auto size = static_cast<int64_t>(static_cast<uint64_t>(taken) << (shift & 63));
    sums[i] += (size ^ number.sign) - number.sign;
    left_out |= number.mantissa ^ taken;
  }
  return left_out == 0;
}

/// A sum of 2^24 units or more is a normal number, so that the scaling by a power of two rounds nothing.
void round_multiples(const int64_t* sums, int64_t count, uint32_t unit, float* out) {
  const double scale = std::ldexp(1.0, static_cast<int>(unit) + Format<float>::kLowestExponent);
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(static_cast<double>(static_cast<float>(sums[i])) * scale);
  }
}

/// Adds ±(size << (place within its digit)) to an element's digits, which stand a block apart.
void add_to_digits(int64_t* digits, Uint128 shifted, int64_t count, int64_t sign) {
  for (int64_t k = 0; k < count; ++k, digits += ExactSum::kBlock) {
    const auto part = static_cast<int64_t>(shifted >> (k * kDigitBits)) & kDigitMask;
    *digits += (part ^ sign) - sign;
  }
}

/// Digits that a block's integers reach into: 62 + 39 bits.
DigitRange digits_from(uint32_t unit) {
  const int64_t lowest = unit / kDigitBits;
  return {lowest, std::min<int64_t>(lowest + 3, Format<float>::kWidth)};
}

/// What a description begins with; then two bytes a block, its unit (or ExactForm's kDigits, kNothing) and its largest place.
enum Description { kLowest, kEnd, kAdded, kBytes };

int64_t blocks_of(int64_t elements) { return (elements + ExactSum::kBlock - 1) / ExactSum::kBlock; }

/// Carries made: every digit in [0, 2^40), which fits. Returns what is carried out at the end, -1 of a negative sum.
/// Digit d stands d blocks behind digit 0.
int64_t carried(const int64_t* digits, const DigitRange& range, bool negated, int64_t* out) {
  int64_t carry = 0;
  for (int64_t d = range.lowest; d < range.end; ++d) {
    const int64_t digit = digits[d * ExactSum::kBlock];
    const int64_t sum = (negated ? -digit : digit) + carry;
    out[d] = sum & kDigitMask;
    carry = sum >> kDigitBits;
  }
  return carry;
}

/// The sum of one element's digits, rounded.
template <typename Float>
Float rounded_digits(const int64_t* own, const DigitRange& used) {
  using F = Format<Float>;
  std::array<int64_t, kMostWidth + 2> padded;  // two zeros below digit 0
  int64_t* digit = padded.data() + 2;
  bool negative = false;
  if (int64_t out = carried(own, used, false, digit); out < 0) {
    negative = true;
    out = carried(own, used, true, digit);
    LOCKSTEP_CHECK(out == 0, "a sum of at most 2^22 numbers stays within its digits");
  } else {
    LOCKSTEP_CHECK(out == 0, "a sum of at most 2^22 numbers stays within its digits");
  }
  int64_t top = used.end - 1;
  while (top >= used.lowest && digit[top] == 0) --top;
  if (top < used.lowest) return 0;
  for (int64_t d = top - 2; d < used.lowest; ++d) digit[d] = 0;
  const auto part = [&](int64_t d) { return static_cast<Uint128>(digit[d]); };
  const Uint128 window = part(top) << (2 * kDigitBits) | part(top - 1) << kDigitBits | part(top - 2);
  bool below = false;
  for (int64_t d = used.lowest; d < top - 2 && !below; ++d) below = digit[d] != 0;
  const int bits = 2 * kDigitBits + static_cast<int>(std::bit_width(static_cast<uint64_t>(digit[top])));
  const auto first_bit = static_cast<int>((top - 2) * kDigitBits);  // of the window, above the lowest exponent
  const int dropped = std::max(bits - (F::kFraction + 1), -first_bit);
  auto kept = static_cast<uint64_t>(window >> dropped);
  const Uint128 rest = window & ((static_cast<Uint128>(1) << dropped) - 1);
  const Uint128 half = static_cast<Uint128>(1) << (dropped - 1);
  if (rest > half || (rest == half && (below || (kept & 1) != 0))) ++kept;
  const double value = std::ldexp(static_cast<double>(kept), first_bit + dropped + F::kLowestExponent);
  return static_cast<Float>(negative ? -value : value);
}

/// Where the digits in use fit into 128 bits together, which they nearly always do in float32: one conversion rounds, to nearest,
/// ties to even. A sum of 2^24 units or more is a normal number, so that the scaling by a power of two is without rounding.
void round_few_digits(const int64_t* own, const DigitRange& used, float* out, int64_t count) {
  constexpr int64_t kFits = int64_t{1} << 45;  // of the digit that stands 80 bits up
  const int64_t wide = used.end - used.lowest;
  const double unit = std::ldexp(1.0, static_cast<int>(used.lowest * kDigitBits) + Format<float>::kLowestExponent);
  const auto digit = [&](int64_t d) { return d < wide ? own[(used.lowest + d) * ExactSum::kBlock] : 0; };
  for (int64_t i = 0; i < count; ++i, ++own) {
    const int64_t third = digit(2), fourth = digit(3);
    if (fourth < -1 || fourth > 1 || third < -kFits || third > kFits) {
      out[i] = rounded_digits<float>(own, used);
      continue;
    }
    const Int128 high = third + (static_cast<Int128>(fourth) << kDigitBits);
    const Int128 sum = digit(0) + (static_cast<Int128>(digit(1)) << kDigitBits) + (high << (2 * kDigitBits));
    out[i] = static_cast<float>(static_cast<double>(static_cast<float>(sum)) * unit);
  }
}

}  // namespace

DigitRange DigitRange::with(const DigitRange& other) const {
  if (empty()) return other;
  if (other.empty()) return *this;
  return {std::min(lowest, other.lowest), std::max(end, other.end)};
}

bool all_finite(const at::Tensor& values) {
  const at::Tensor flat = values.contiguous();
  if (flat.scalar_type() == at::kFloat) return largest_bits(flat.const_data_ptr<float>(), flat.numel()) < 0x7f800000;
  bool all = true;
  const auto* const numbers = flat.const_data_ptr<double>();
  for (int64_t i = 0; i < flat.numel(); ++i) all &= std::isfinite(numbers[i]);
  return all;
}

ExactSum::ExactSum(int64_t elements, at::ScalarType dtype)
    : elements_(elements),
      dtype_(dtype),
      width_(dtype == at::kFloat ? Format<float>::kWidth : Format<double>::kWidth),
      blocks_(static_cast<std::size_t>(blocks_of(elements))) {
  if (dtype != at::kFloat && dtype != at::kDouble) {
    throw std::invalid_argument(c10::str("an exact sum takes float32 or float64, not ", dtype));
  }
  if (dtype == at::kFloat) integers_ = at::zeros({elements}, at::kLong);
}

void ExactSum::clear() {
  if (integers_.defined()) integers_.zero_();
  for (Block& block : blocks_) {
    block.added = 0;
    if (block.used.empty()) continue;
    std::fill(block.digits.get() + block.used.lowest * kBlock, block.digits.get() + block.used.end * kBlock, 0);
    block.used = {};
  }
}

void ExactSum::zero(int64_t first, int64_t end) {
  if (integers_.defined()) std::fill_n(integers_.mutable_data_ptr<int64_t>() + first, end - first, 0);
  for (int64_t element = first; element < end; element = (element / kBlock + 1) * kBlock) {
    const Block& block = blocks_[static_cast<std::size_t>(element / kBlock)];
    const int64_t offset = element % kBlock, count = std::min(end - element, kBlock - offset);
    for (int64_t d = block.used.lowest; d < block.used.end; ++d) {
      std::fill_n(block.digits.get() + d * kBlock + offset, count, 0);
    }
  }
}

int64_t* ExactSum::digits_of(Block& block) {
  if (block.digits == nullptr) block.digits = std::make_unique<int64_t[]>(static_cast<std::size_t>(width_ * kBlock));
  return block.digits.get();
}

/// Leaves out what `skip` says of a place.
template <typename Float, typename Skip>
void ExactSum::add_digits(Block& block, int64_t offset, const Float* values, int64_t count, Skip skip) {
  using F = Format<Float>;
  int64_t* const own = digits_of(block) + offset;
  uint32_t least = 0xffffffff, most = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Decoded<Float> number(values[i]);
    if (number.mantissa == 0 || skip(number.place)) continue;
    const uint32_t digit = number.place / kDigitBits;
    add_to_digits(own + i + int64_t{digit} * kBlock, static_cast<Uint128>(number.mantissa) << (number.place % kDigitBits),
                  F::kTouched, number.sign);
    least = std::min(least, digit);
    most = std::max(most, digit);
  }
  // One digit more than was touched, where there is one, takes the carries.
  if (least <= most) {
    block.used = block.used.with({least, std::min<int64_t>(int64_t{most} + F::kTouched + 1, F::kWidth)});
  }
}

void ExactSum::carry_over(Block& block, int64_t index) {
  if (std::exchange(block.added, 0) == 0) return;
  const DigitRange range = digits_from(block.unit);
  int64_t* const integers = integers_.mutable_data_ptr<int64_t>() + index * kBlock;
  int64_t* const digits = digits_of(block) + range.lowest * kBlock;
  for (int64_t i = 0; i < size_of_block(index); ++i) {
    const int64_t sign = integers[i] >> 63;
    const auto size = static_cast<uint64_t>((integers[i] ^ sign) - sign);
    add_to_digits(digits + i, static_cast<Uint128>(size) << (block.unit % kDigitBits), range.end - range.lowest, sign);
    integers[i] = 0;
  }
  block.used = block.used.with(range);
}

void ExactSum::add_in_units(Block& block, int64_t element, const float* values, int64_t count) {
  const uint32_t bits = largest_bits(values, count);
  if (bits == 0) return;
  const auto top = static_cast<uint8_t>(std::max<uint32_t>(bits >> Format<float>::kFraction, 1) - 1);
  if (block.added >= kMostAdded || (block.added > 0 && top > block.unit + kReach)) carry_over(block, element / kBlock);
  if (block.added == 0) {
    block.unit = top > kBelow ? static_cast<uint8_t>(top - kBelow) : 0;
    block.top = 0;
  }
  ++block.added;
  block.top = std::max(block.top, top);
  if (add_multiples(values, count, block.unit, integers_.mutable_data_ptr<int64_t>() + element)) return;
  add_digits(block, element % kBlock, values, count, [&](uint32_t place) { return in_reach(place, block.unit); });
}

template <typename Float>
void ExactSum::add_values(int64_t first, const Float* values, int64_t count) {
  for (int64_t element = first, end = first + count; element < end;) {
    Block& block = blocks_[static_cast<std::size_t>(element / kBlock)];
    const int64_t here = std::min(end - element, kBlock - element % kBlock);
    if constexpr (std::is_same_v<Float, float>) {
      add_in_units(block, element, values, here);
    } else {
      add_digits(block, element % kBlock, values, here, [](uint32_t) { return false; });
    }
    element += here;
    values += here;
  }
}

void ExactSum::add(int64_t first, const at::Tensor& values) {
  LOCKSTEP_CHECK(values.is_contiguous() && values.scalar_type() == dtype_ && first >= 0 &&
                     first + values.numel() <= elements_,
                 "what is added exactly is contiguous, of the sum's type, and within it");
  if (dtype_ == at::kFloat) {
    add_values(first, values.const_data_ptr<float>(), values.numel());
  } else {
    add_values(first, values.const_data_ptr<double>(), values.numel());
  }
}

void ExactSum::add(int64_t element, double value) {
  if (dtype_ == at::kFloat) {
    const auto narrow = static_cast<float>(value);
    add_values(element, &narrow, 1);
  } else {
    add_values(element, &value, 1);
  }
}

at::Tensor ExactSum::description() {
  const auto blocks = static_cast<int64_t>(blocks_.size());
  at::Tensor description = at::zeros({kBytes + (2 * blocks + 7) / 8}, at::kLong);
  auto* const numbers = description.mutable_data_ptr<int64_t>();
  DigitRange used;
  std::vector<uint8_t> bytes;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    Block& block = blocks_[b];
    if (!block.used.empty()) carry_over(block, static_cast<int64_t>(b));
    used = used.with(block.used);
    numbers[kAdded] = std::max<int64_t>(numbers[kAdded], block.added);
    const uint8_t otherwise = block.used.empty() ? ExactForm::kNothing : ExactForm::kDigits;
    bytes.push_back(block.added > 0 ? block.unit : otherwise);
    bytes.push_back(block.top);
  }
  numbers[kLowest] = used.lowest;
  numbers[kEnd] = used.end;
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<uint8_t*>(numbers + kBytes));
  return description;
}

ExactForm ExactSum::form_of(std::span<const int64_t* const> descriptions, int64_t elements) {
  ExactForm form;
  int64_t added = 0;
  for (const int64_t* of_rank : descriptions) {
    form.range = form.range.with({of_rank[kLowest], of_rank[kEnd]});
    added += of_rank[kAdded];
  }
  for (int64_t b = 0; b < blocks_of(elements); ++b) {
    const auto bytes = [b](const int64_t* of_rank) { return reinterpret_cast<const uint8_t*>(of_rank + kBytes) + 2 * b; };
    uint8_t unit = ExactForm::kNothing, top = 0;
    bool digits = false;
    for (const int64_t* of_rank : descriptions) {
      const uint8_t own = bytes(of_rank)[0];
      digits = digits || own == ExactForm::kDigits;
      if (own >= ExactForm::kDigits) continue;
      unit = std::min(unit, own);
      top = std::max(top, bytes(of_rank)[1]);
    }
    if (unit < ExactForm::kDigits) {
      digits = digits || top - unit + 24 + std::bit_width(static_cast<uint64_t>(added)) > 62;
      for (const int64_t* of_rank : descriptions) {
        const uint8_t own = bytes(of_rank)[0];
        if (digits && own < ExactForm::kDigits) form.range = form.range.with(digits_from(own));
      }
    }
    form.units.push_back(digits ? ExactForm::kDigits : unit);
  }
  return form;
}

ExactForm ExactSum::digits_alone(int64_t elements, at::ScalarType dtype) {
  return {std::vector<uint8_t>(static_cast<std::size_t>(blocks_of(elements)), ExactForm::kDigits),
          {0, dtype == at::kFloat ? Format<float>::kWidth : Format<double>::kWidth}};
}

/// Does a sum in that form have integers? Then it has those of all elements, before all digits.
bool ExactSum::has_integers(const ExactForm& form) {
  return std::any_of(form.units.begin(), form.units.end(), [](uint8_t unit) { return unit < ExactForm::kDigits; });
}

int64_t ExactSum::size_of(const ExactForm& form, int64_t elements) {
  int64_t size = has_integers(form) ? elements : 0;
  for (std::size_t b = 0; b < form.units.size(); ++b) {
    const int64_t in_block = std::min(kBlock, elements - static_cast<int64_t>(b) * kBlock);
    if (form.units[b] == ExactForm::kDigits) size += in_block * (form.range.end - form.range.lowest);
  }
  return size;
}

void ExactSum::write(const ExactForm& form, int64_t* out) {
  const auto blocks = static_cast<int64_t>(blocks_.size());
  int64_t* digits = out + (has_integers(form) ? elements_ : 0);
  for (int64_t b = 0; b < blocks; ++b) {
    Block& block = blocks_[static_cast<std::size_t>(b)];
    const uint8_t unit = form.units[static_cast<std::size_t>(b)];
    const int64_t count = size_of_block(b);
    if (unit == ExactForm::kDigits) carry_over(block, b);
    if (has_integers(form)) {
      const int64_t* const own = integers_.const_data_ptr<int64_t>() + b * kBlock;
      const int64_t factor = int64_t{1} << (block.added > 0 ? block.unit - unit : 0);
      for (int64_t i = 0; i < count; ++i) out[b * kBlock + i] = own[i] * factor;
    }
    if (unit != ExactForm::kDigits) continue;
    for (int64_t d = form.range.lowest; d < form.range.end; ++d, digits += count) {
      if (d >= block.used.lowest && d < block.used.end) {
        std::copy_n(block.digits.get() + d * kBlock, count, digits);
      } else {
        std::fill_n(digits, count, 0);
      }
    }
  }
}

void ExactSum::read(const ExactForm& form, const at::Tensor& sums) {
  LOCKSTEP_CHECK(sums.is_contiguous() && sums.numel() == size_of(form, elements_),
                 "sums come back in the form in which they were written");
  clear();
  const int64_t* digits = sums.const_data_ptr<int64_t>();
  if (has_integers(form)) {
    integers_ = sums.narrow(0, 0, elements_);
    digits += elements_;
  }
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    Block& block = blocks_[b];
    if (form.units[b] < ExactForm::kDigits) {
      block.unit = form.units[b];
      block.added = kMostAdded;  // who adds more carries over first
    }
    if (form.units[b] != ExactForm::kDigits) continue;
    const int64_t count = size_of_block(static_cast<int64_t>(b));
    for (int64_t d = form.range.lowest; d < form.range.end; ++d, digits += count) {
      std::copy_n(digits, count, digits_of(block) + d * kBlock);
    }
    block.used = form.range;
  }
}

template <typename Float>
void ExactSum::round_block(Block& block, int64_t element, Float* out, int64_t count) {
  if (block.used.empty()) {
    if constexpr (std::is_same_v<Float, float>) {
      round_multiples(integers_.const_data_ptr<int64_t>() + element, count, block.unit, out);
    } else {
      std::fill_n(out, count, Float{0});
    }
    return;
  }
  carry_over(block, element / kBlock);
  const int64_t* const own = block.digits.get() + element % kBlock;
  if constexpr (std::is_same_v<Float, float>) {
    if (block.used.end - block.used.lowest <= 4) return round_few_digits(own, block.used, out, count);
  }
  for (int64_t i = 0; i < count; ++i) out[i] = rounded_digits<Float>(own + i, block.used);
}

template <typename Float>
void ExactSum::round_values(int64_t first, Float* out, int64_t count) {
  for (int64_t element = first, end = first + count; element < end;) {
    const int64_t here = std::min(end - element, kBlock - element % kBlock);
    round_block(blocks_[static_cast<std::size_t>(element / kBlock)], element, out, here);
    element += here;
    out += here;
  }
}

void ExactSum::round_to(int64_t first, at::Tensor values) {
  LOCKSTEP_CHECK(values.is_contiguous() && values.scalar_type() == dtype_ && first + values.numel() <= elements_,
                 "rounded sums go into a contiguous tensor of the sum's type");
  if (dtype_ == at::kFloat) {
    round_values(first, values.mutable_data_ptr<float>(), values.numel());
  } else {
    round_values(first, values.mutable_data_ptr<double>(), values.numel());
  }
}

double ExactSum::rounded(int64_t element) {
  at::Tensor value = at::empty({1}, dtype_);
  round_to(element, value);
  return value.item<double>();
}

namespace {

/// Most numbers that stand beside a row's loss.
constexpr int64_t kMostScalars = 32;
/// A rank's message before any sum: rows, the row that is not finite, then what describes the two sums.
enum Header { kRows, kPosition, kSample, kWhat, kHeader };

/// Each parameter begins at a block of its own, so that a block's numbers are of like size.
std::vector<int64_t> beginnings(const ParameterList& parameters) {
  constexpr int64_t kBlock = ExactSum::kBlock;
  std::vector<int64_t> first{0};
  for (const at::Tensor& parameter : parameters.tensors) {
    first.push_back(first.back() + (parameter.numel() + kBlock - 1) / kBlock * kBlock);
  }
  return first;
}

at::ScalarType type_of(const ParameterList& parameters) {
  return parameters.tensors.empty() ? at::kFloat : parameters.tensors.front().scalar_type();
}

}  // namespace

ExactRows::ExactRows(const ParameterList& parameters)
    : parameters_(parameters),
      first_(beginnings(parameters)),
      gradients_(first_.back(), type_of(parameters)),
      scalars_(1 + kMostScalars, at::kDouble),
      tensor_hashes_(parameters.tensors.size(), 0) {}

void ExactRows::begin_step() {
  gradients_.clear();
  scalars_.clear();
  row_hashes_.clear();
  std::fill(tensor_hashes_.begin(), tensor_hashes_.end(), 0);
  bad_ = {};
  rows_ = 0;
}

void ExactRows::note_bad(const RowName& row, int64_t what) {
  if (bad_.what < 0) bad_ = {row, what};
}

void ExactRows::name_scalars(const Scalars& scalars) {
  LOCKSTEP_CHECK(static_cast<int64_t>(scalars.size()) <= kMostScalars, "more numbers beside a loss than there are places");
  names_.clear();
  for (const auto& [name, value] : scalars) names_.push_back(name);
}

void ExactRows::add(const RowName& row, const std::vector<at::Tensor>& gradients, double loss,
                    const Scalars& scalars) {
  const auto parameters = static_cast<int64_t>(gradients.size());
  name_scalars(scalars);
  ++rows_;
  uint64_t of_row = 0;
  if (!std::isfinite(loss)) note_bad(row, parameters);
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    if (!gradients[p].defined()) continue;
    const at::Tensor gradient = gradients[p].contiguous();
    if (hashes_) {
      const uint64_t hash = tensor_hash(view_of(gradient));
      of_row = keyed(of_row, p, hash);
      tensor_hashes_[p] = static_cast<int64_t>(static_cast<uint64_t>(tensor_hashes_[p]) + keyed(hash, row.position));
    }
    if (!all_finite(gradient)) {
      note_bad(row, static_cast<int64_t>(p));
    } else {
      gradients_.add(first_[p], gradient);
    }
  }
  row_hashes_.push_back(static_cast<int64_t>(of_row));
  if (std::isfinite(loss)) scalars_.add(0, loss);
  for (std::size_t k = 0; k < scalars.size(); ++k) {
    if (std::isfinite(scalars[k].second)) {
      scalars_.add(static_cast<int64_t>(1 + k), scalars[k].second);
    } else {
      note_bad(row, parameters + 1 + static_cast<int64_t>(k));
    }
  }
}

std::vector<at::Tensor> ExactRows::gradients(double divisor) {
  at::Tensor all = at::empty({first_.back()}, type_of(parameters_));
  gradients_.round_to(0, all);
  all.div_(divisor);
  std::vector<at::Tensor> gradients;
  for (std::size_t p = 0; p < parameters_.tensors.size(); ++p) {
    const at::Tensor& parameter = parameters_.tensors[p];
    gradients.push_back(all.narrow(0, first_[p], parameter.numel()).view(parameter.sizes()));
  }
  return gradients;
}

void ExactRows::replace(std::size_t parameter, const at::Tensor& gradient) {
  if (!all_finite(gradient)) {
    throw std::runtime_error(c10::str("a rank sends NaN or infinity as its gradient of ", parameters_.names[parameter],
                                      ": exact arithmetic adds numbers alone"));
  }
  gradients_.zero(first_[parameter], first_[parameter + 1]);
  gradients_.add(first_[parameter], gradient.contiguous());
}

ExactRows::Scalars ExactRows::scalar_means() {
  Scalars means;
  for (std::size_t k = 0; k < names_.size(); ++k) {
    const double sum = scalars_.rounded(static_cast<int64_t>(1 + k));
    means.emplace_back(names_[k], rows_ > 0 ? sum / static_cast<double>(rows_) : 0.0);
  }
  return means;
}

void ExactRows::require_finite(const std::vector<const int64_t*>& headers) const {
  const int64_t* worst = nullptr;
  std::size_t rank = 0;
  for (std::size_t r = 0; r < headers.size(); ++r) {
    if (headers[r][kWhat] < 0 || (worst != nullptr && worst[kPosition] <= headers[r][kPosition])) continue;
    worst = headers[r];
    rank = r;
  }
  if (worst == nullptr) return;
  const auto parameters = static_cast<int64_t>(parameters_.names.size());
  const int64_t what = worst[kWhat];
  std::string where = "its loss";
  if (what < parameters) where = "its gradient of " + parameters_.names[static_cast<std::size_t>(what)];
  if (what > parameters) {
    const auto scalar = static_cast<std::size_t>(what - parameters - 1);
    where = scalar < names_.size() ? names_[scalar] : "a number beside its loss";
  }
  throw std::runtime_error(c10::str("row ", worst[kPosition], " of the step's batch (sample ", worst[kSample], ", rank ", rank,
                                    ") has NaN or infinity in ", where,
                                    ": exact arithmetic adds numbers alone, and nothing was summed"));
}

void ExactRows::exchange(Comm& comm, int64_t step, bool gradients) {
  const at::Tensor begin = at::empty({kHeader}, at::kLong);
  auto* header = begin.mutable_data_ptr<int64_t>();
  header[kRows] = rows_;
  header[kPosition] = bad_.row.position;
  header[kSample] = bad_.row.sample_id;
  header[kWhat] = bad_.what;
  const at::Tensor of_gradients = gradients_.description();
  const at::Tensor own = at::cat({begin, of_gradients, scalars_.description()});
  const at::Tensor gathered = comm.all_gather(own, "exact.header");
  std::vector<const int64_t*> headers, gradient_sums, scalar_sums;
  for (int r = 0; r < comm.world_size(); ++r) {
    headers.push_back(gathered.const_data_ptr<int64_t>() + r * own.numel());
    gradient_sums.push_back(headers.back() + kHeader);
    scalar_sums.push_back(gradient_sums.back() + of_gradients.numel());
  }
  try {
    require_finite(headers);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(c10::str("step ", step, ": ", error.what()));
  }
  rows_ = 0;
  for (const int64_t* of_rank : headers) rows_ += of_rank[kRows];
  if (comm.world_size() == 1) return;
  const ExactForm form = ExactSum::form_of(gradient_sums, gradients_.elements());
  const ExactForm scalar_form = ExactSum::form_of(scalar_sums, scalars_.elements());
  const int64_t size = gradients ? ExactSum::size_of(form, gradients_.elements()) : 0;
  const int64_t scalar_size = ExactSum::size_of(scalar_form, scalars_.elements());
  const at::Tensor sums = at::empty({size + scalar_size}, at::kLong);
  if (gradients) gradients_.write(form, sums.mutable_data_ptr<int64_t>());
  scalars_.write(scalar_form, sums.mutable_data_ptr<int64_t>() + size);
  if (sums.numel() > 0) comm.all_reduce_sum(sums, "exact.sums");
  if (gradients) gradients_.read(form, sums.narrow(0, 0, size));
  scalars_.read(scalar_form, sums.narrow(0, size, scalar_size));
}

}  // namespace lockstep
