#include "harness/suites/checkpoint/saver/damage.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/lib/checkpoint/names.h"
#include "harness/suites/checkpoint/saver/scene.h"

namespace lockstep::saver {
namespace {

using checkpoint::MemoryStorage;

std::string file_name(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

std::string of_older(const CorruptFixture& corrupt_fixture, const std::string& path) {
  std::string other = path;
  const std::size_t at = other.find(corrupt_fixture.newest());
  if (at != std::string::npos) other.replace(at, corrupt_fixture.newest().size(), corrupt_fixture.older());
  return other;
}

using NewBytes = std::function<std::string(const CorruptFixture&)>;

Damage of_file(std::string name, std::string failure, const std::string& path, std::string words, NewBytes bytes) {
  Damage damage{std::move(name), std::move(failure), CorruptFixture::kind_of(path), std::move(words), {}};
  damage.judge = [path, bytes = std::move(bytes)](const CorruptFixture& corrupt_fixture) {
    MemoryStorage disk(corrupt_fixture.disk());
    disk.put_file(path, bytes(corrupt_fixture));
    return corrupt_fixture.judge(disk, CorruptFixture::look_at(path));
  };
  return damage;
}

enum class BlockDamage { zeroed, stale, exchanged };

/// The file's bytes with that done to its block; `other` is the block that it changes places with.
std::string damaged(const CorruptFixture& corrupt_fixture, const std::string& path, BlockDamage how, std::size_t block, std::size_t first,
                    std::size_t other) {
  const std::string& whole = *corrupt_fixture.disk().bytes(path);
  const std::size_t begin = first * block, length = std::min(block, whole.size() - begin);
  std::string bytes = whole;
  switch (how) {
    case BlockDamage::zeroed:
      return bytes.replace(begin, length, length, '\0');
    case BlockDamage::stale: {
      const auto older = corrupt_fixture.disk().bytes(of_older(corrupt_fixture, path));
      return begin + length > older->size() ? bytes : bytes.replace(begin, length, *older, begin, length);
    }
    case BlockDamage::exchanged:
      if (other * block + length > whole.size()) return bytes;
      bytes.replace(begin, length, whole, other * block, length);
      return bytes.replace(other * block, length, whole, begin, length);
  }
  return bytes;
}

/// Blocks of one size in one file.
void add_blocks(const CorruptFixture& corrupt_fixture, const std::string& path, std::size_t block, std::vector<Damage>& all) {
  const std::size_t count = (corrupt_fixture.disk().bytes(path)->size() + block - 1) / block;
  const std::string file = file_name(path);
  const auto add = [&](BlockDamage how, std::string_view kind, std::string_view what, std::size_t first, std::size_t second) {
    if (damaged(corrupt_fixture, path, how, block, first, second) == *corrupt_fixture.disk().bytes(path)) return;
    all.push_back(of_file(fmt::format("{}-{}:{}:{}-{}", kind, block, file, first, second), fmt::format("{} of {} bytes", what, block),
                          path, fmt::format("{}: {} of {} bytes, {} and {}", file, what, block, first, second),
                          [=](const CorruptFixture& one) { return damaged(one, path, how, block, first, second); }));
  };
  for (std::size_t first = 0; first < count; ++first) {
    add(BlockDamage::zeroed, "zero", "block of zeros", first, first);
    if (CorruptFixture::look_at(path) == Look::newest) add(BlockDamage::stale, "stale", "stale block", first, first);
    for (std::size_t second = first + 1; second < count; ++second)
      add(BlockDamage::exchanged, "swap", "exchanged blocks", first, second);
  }
}

using Change = std::function<void(MemoryStorage&)>;

Damage of_files(const std::string& name, const std::string& failure, const std::string& place, Change change,
                Look look = Look::newest) {
  Damage damage{name, failure, place, place, {}};
  damage.judge = [change = std::move(change), look](const CorruptFixture& corrupt_fixture) {
    MemoryStorage disk(corrupt_fixture.disk());
    change(disk);
    return corrupt_fixture.judge(disk, look);
  };
  return damage;
}

}  // namespace

std::vector<Damage> block_damages(const CorruptFixture& corrupt_fixture) {
  std::vector<Damage> all;
  for (const std::string& path : corrupt_fixture.files()) {
    for (const std::size_t block : {std::size_t{512}, std::size_t{4096}}) {
      if (corrupt_fixture.disk().bytes(path)->size() > block) add_blocks(corrupt_fixture, path, block, all);
    }
  }
  return all;
}

std::vector<Damage> file_damages(const CorruptFixture& corrupt_fixture) {
  std::vector<Damage> all;
  std::vector<std::string> parts;
  for (const std::string& path : corrupt_fixture.files()) {
    const std::string file = file_name(path);
    all.push_back(of_file("longer:" + file, "a byte more at the end", path, file + ": a byte more",
                          [path](const CorruptFixture& one) { return *one.disk().bytes(path) + '\0'; }));
    if (CorruptFixture::look_at(path) != Look::newest) continue;
    parts.push_back(path);
    all.push_back(of_files("missing:" + file, "missing", file, [path](MemoryStorage& disk) { disk.take(path); }));
    all.push_back(of_files("older:" + file, "that of the older step", file, [path, &corrupt_fixture](MemoryStorage& disk) {
      disk.put_file(path, *corrupt_fixture.disk().bytes(of_older(corrupt_fixture, path)));
    }));
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (std::size_t j = i + 1; j < parts.size(); ++j) {
      const std::string first = parts[i], second = parts[j];
      const std::string both = file_name(first) + "-" + file_name(second);
      all.push_back(of_files("exchanged:" + both, "two files exchanged", both, [=, &corrupt_fixture](MemoryStorage& disk) {
        disk.put_file(first, *corrupt_fixture.disk().bytes(second));
        disk.put_file(second, *corrupt_fixture.disk().bytes(first));
      }));
      all.push_back(of_files("both-older:" + both, "two files of the older step", both, [=, &corrupt_fixture](MemoryStorage& disk) {
        for (const std::string& path : {first, second}) disk.put_file(path, *corrupt_fixture.disk().bytes(of_older(corrupt_fixture, path)));
      }));
    }
  }
  all.push_back(of_files("all-older", "all files of the older step", "the whole folder", [parts, &corrupt_fixture](MemoryStorage& disk) {
    for (const std::string& path : parts) disk.put_file(path, *corrupt_fixture.disk().bytes(of_older(corrupt_fixture, path)));
  }));
  return all;
}

}  // namespace lockstep::saver
