#include "harness/train/exact_sum.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "harness/base/errors.h"

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

template <typename Float>
bool finite(const Float* values, int64_t count) {
  using Bits = typename Format<Float>::Bits;
  constexpr Bits kInfinite = Bits{Format<Float>::kExponentMask} << Format<Float>::kFraction;
  bool all = true;
  for (int64_t i = 0; i < count; ++i) all &= (std::bit_cast<Bits>(values[i]) & kInfinite) != kInfinite;
  return all;
}

/// Carries made: every digit in [0, 2^40), which fits. Returns what is carried out at the end, -1 of a negative sum.
/// Digit d stands at digits[d * stride].
int64_t carried(const int64_t* digits, int64_t stride, const DigitRange& range, bool negated, int64_t* out) {
  int64_t carry = 0;
  for (int64_t d = range.lowest; d < range.end; ++d) {
    const int64_t digit = digits[d * stride];
    const int64_t sum = (negated ? -digit : digit) + carry;
    out[d] = sum & kDigitMask;
    carry = sum >> kDigitBits;
  }
  return carry;
}

}  // namespace

DigitRange DigitRange::with(const DigitRange& other) const {
  if (empty()) return other;
  if (other.empty()) return *this;
  return {std::min(lowest, other.lowest), std::max(end, other.end)};
}

bool all_finite(const at::Tensor& values) {
  const at::Tensor flat = values.contiguous();
  if (flat.scalar_type() == at::kFloat) return finite(flat.const_data_ptr<float>(), flat.numel());
  if (flat.scalar_type() == at::kDouble) return finite(flat.const_data_ptr<double>(), flat.numel());
  return at::isfinite(flat).all().item<bool>();
}

ExactSum::ExactSum(int64_t elements, at::ScalarType dtype)
    : elements_(elements), dtype_(dtype), width_(dtype == at::kFloat ? Format<float>::kWidth : Format<double>::kWidth) {
  if (dtype != at::kFloat && dtype != at::kDouble) {
    throw std::invalid_argument(c10::str("an exact sum takes float32 or float64, not ", dtype));
  }
  digits_.assign(static_cast<std::size_t>(elements * width_), 0);
}

DigitRange ExactSum::whole(at::ScalarType dtype) {
  return {0, dtype == at::kFloat ? Format<float>::kWidth : Format<double>::kWidth};
}

void ExactSum::clear() {
  if (!used_.empty()) std::fill(plane(used_.lowest), plane(used_.end), 0);
  used_ = {};
}

void ExactSum::zero(int64_t first, int64_t end) {
  for (int64_t d = used_.lowest; d < used_.end; ++d) std::fill(plane(d) + first, plane(d) + end, 0);
}

template <typename Float>
void ExactSum::add_values(int64_t first, const Float* values, int64_t count) {
  using F = Format<Float>;
  using Bits = typename F::Bits;
  using Wide = std::conditional_t<std::is_same_v<Float, float>, uint64_t, Uint128>;
  constexpr Bits kFractionMask = (Bits{1} << F::kFraction) - 1;
  int64_t* const elements = digits_.data() + first;
  uint32_t least = 0xffffffff, most = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Bits bits = std::bit_cast<Bits>(values[i]);
    const auto exponent = static_cast<uint32_t>(bits >> F::kFraction) & F::kExponentMask;
    const Bits fraction = bits & kFractionMask;
    const Bits mantissa = exponent != 0 ? fraction | (Bits{1} << F::kFraction) : fraction;
    if (mantissa == 0) continue;
    const uint32_t place = exponent != 0 ? exponent - 1 : 0;
    const uint32_t digit = place / kDigitBits;
    const Wide shifted = static_cast<Wide>(mantissa) << (place % kDigitBits);
    const int64_t sign = -static_cast<int64_t>(bits >> (8 * sizeof(Bits) - 1));
    int64_t* own = elements + i + int64_t{digit} * elements_;
    for (int k = 0; k < F::kTouched; ++k, own += elements_) {
      const auto part = static_cast<int64_t>(shifted >> (k * kDigitBits)) & kDigitMask;
      *own += (part ^ sign) - sign;
    }
    least = std::min(least, digit);
    most = std::max(most, digit);
  }
  // One digit more than was touched, where there is one, takes the carries.
  if (least <= most) {
    used_ = used_.with({least, std::min<int64_t>(int64_t{most} + F::kTouched + 1, F::kWidth)});
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

at::Tensor ExactSum::digits(const DigitRange& range) const {
  const int64_t wide = std::max<int64_t>(range.end - range.lowest, 0);
  at::Tensor sent = at::empty({wide, elements_}, at::kLong);
  std::copy_n(digits_.data() + range.lowest * elements_, wide * elements_, sent.mutable_data_ptr<int64_t>());
  return sent;
}

void ExactSum::set_digits(const DigitRange& range, const at::Tensor& digits) {
  const int64_t wide = std::max<int64_t>(range.end - range.lowest, 0);
  LOCKSTEP_CHECK(digits.numel() == elements_ * wide, "digits come back in the shape in which they were taken");
  clear();
  std::copy_n(digits.const_data_ptr<int64_t>(), wide * elements_, plane(range.lowest));
  used_ = range;
}

template <typename Float>
Float ExactSum::rounded_as(int64_t element) const {
  using F = Format<Float>;
  if (used_.empty()) return 0;
  const int64_t* const own = digits_.data() + element;
  std::array<int64_t, kMostWidth + 2> padded;  // two zeros below digit 0
  int64_t* digit = padded.data() + 2;
  bool negative = false;
  if (int64_t out = carried(own, elements_, used_, false, digit); out < 0) {
    negative = true;
    out = carried(own, elements_, used_, true, digit);
    LOCKSTEP_CHECK(out == 0, "a sum of at most 2^22 numbers stays within its digits");
  } else {
    LOCKSTEP_CHECK(out == 0, "a sum of at most 2^22 numbers stays within its digits");
  }
  int64_t top = used_.end - 1;
  while (top >= used_.lowest && digit[top] == 0) --top;
  if (top < used_.lowest) return 0;
  for (int64_t d = top - 2; d < used_.lowest; ++d) digit[d] = 0;
  const auto part = [&](int64_t d) { return static_cast<Uint128>(digit[d]); };
  const Uint128 window = part(top) << (2 * kDigitBits) | part(top - 1) << kDigitBits | part(top - 2);
  bool below = false;
  for (int64_t d = used_.lowest; d < top - 2 && !below; ++d) below = digit[d] != 0;
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
void ExactSum::round_few_digits(int64_t first, float* out, int64_t count) const {
  constexpr int64_t kFits = int64_t{1} << 45;  // of the digit that stands 80 bits up
  const int64_t wide = used_.end - used_.lowest;
  const double unit = std::ldexp(1.0, static_cast<int>(used_.lowest * kDigitBits) + Format<float>::kLowestExponent);
  const int64_t* own = digits_.data() + used_.lowest * elements_ + first;
  const auto digit = [&](int64_t d) { return d < wide ? own[d * elements_] : 0; };
  for (int64_t i = 0; i < count; ++i, ++own) {
    const int64_t third = digit(2), fourth = digit(3);
    if (fourth < -1 || fourth > 1 || third < -kFits || third > kFits) {
      out[i] = rounded_as<float>(first + i);
      continue;
    }
    const Int128 high = third + (static_cast<Int128>(fourth) << kDigitBits);
    const Int128 sum = digit(0) + (static_cast<Int128>(digit(1)) << kDigitBits) + (high << (2 * kDigitBits));
    out[i] = static_cast<float>(static_cast<double>(static_cast<float>(sum)) * unit);
  }
}

void ExactSum::round_to(int64_t first, at::Tensor values) const {
  LOCKSTEP_CHECK(values.is_contiguous() && values.scalar_type() == dtype_ && first + values.numel() <= elements_,
                 "rounded sums go into a contiguous tensor of the sum's type");
  const int64_t count = values.numel();
  if (dtype_ == at::kFloat) {
    auto* out = values.mutable_data_ptr<float>();
    if (!used_.empty() && used_.end - used_.lowest <= 4) {
      round_few_digits(first, out, count);
      return;
    }
    for (int64_t i = 0; i < count; ++i) out[i] = rounded_as<float>(first + i);
  } else {
    auto* out = values.mutable_data_ptr<double>();
    for (int64_t i = 0; i < count; ++i) out[i] = rounded_as<double>(first + i);
  }
}

double ExactSum::rounded(int64_t element) const {
  return dtype_ == at::kFloat ? rounded_as<float>(element) : rounded_as<double>(element);
}

}  // namespace lockstep
