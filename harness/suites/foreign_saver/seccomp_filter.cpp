#include "harness/suites/foreign_saver/seccomp_filter.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "harness/suites/foreign_saver/system_calls.h"

namespace lockstep::program {
namespace {

constexpr uint32_t kLoad = BPF_LD | BPF_W | BPF_ABS, kEqual = BPF_JMP | BPF_JEQ | BPF_K,
                   kAnyBit = BPF_JMP | BPF_JSET | BPF_K, kReturn = BPF_RET | BPF_K;

/// The lower half of an argument; little endian.
uint32_t low_half(int argument) {
  return static_cast<uint32_t>(offsetof(seccomp_data, args) + 8 * static_cast<std::size_t>(argument));
}

sock_filter line(uint32_t code, uint32_t value, unsigned if_true = 0, unsigned if_false = 0) {
  return {static_cast<uint16_t>(code), static_cast<uint8_t>(if_true), static_cast<uint8_t>(if_false), value};
}

/// Traced only if one of these bits is set in that argument.
void add_if_bits(std::vector<sock_filter>& filter, uint32_t number, int argument, uint32_t bits) {
  filter.push_back(line(kEqual, number, 0, 4));
  filter.push_back(line(kLoad, low_half(argument)));
  filter.push_back(line(kAnyBit, bits, 0, 1));
  filter.push_back(line(kReturn, SECCOMP_RET_TRACE));
  filter.push_back(line(kReturn, SECCOMP_RET_ALLOW));
}

/// Traced only if that argument has this value. The number of the call stands in the accumulator again where it has not.
void add_if_equal(std::vector<sock_filter>& filter, uint32_t number, int argument, uint32_t value) {
  filter.push_back(line(kEqual, number, 0, 4));
  filter.push_back(line(kLoad, low_half(argument)));
  filter.push_back(line(kEqual, value, 0, 1));
  filter.push_back(line(kReturn, SECCOMP_RET_TRACE));
  filter.push_back(line(kLoad, offsetof(seccomp_data, nr)));
}

}  // namespace

std::vector<sock_filter> tracing_filter() {
  constexpr uint32_t kWriting = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC;
  std::vector<sock_filter> filter;
  filter.push_back(line(kLoad, offsetof(seccomp_data, arch)));
  filter.push_back(line(kEqual, AUDIT_ARCH_X86_64, 1, 0));
  filter.push_back(line(kReturn, SECCOMP_RET_TRACE | kForeignCall));
  filter.push_back(line(kLoad, offsetof(seccomp_data, nr)));
  for (const SystemCall& call : system_calls()) {
    const auto number = static_cast<uint32_t>(call.number);
    if (call.shape == Shape::open) {
      add_if_bits(filter, number, 1, kWriting);
    } else if (call.shape == Shape::openat) {
      add_if_bits(filter, number, 2, kWriting);
    } else if (call.shape == Shape::mmap) {
      add_if_bits(filter, number, 3, MAP_SHARED);
    } else if (call.shape == Shape::clone) {
      for (const unsigned request : cloning_requests()) add_if_equal(filter, number, 1, request);
    } else {
      filter.push_back(line(kEqual, number, 0, 1));
      filter.push_back(line(kReturn, SECCOMP_RET_TRACE));
    }
  }
  filter.push_back(line(kReturn, SECCOMP_RET_ALLOW));
  return filter;
}

}  // namespace lockstep::program
