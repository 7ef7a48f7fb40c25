#pragma once
// Ways to damage a checkpoint's files, and to ask for what it is not.

#include <functional>
#include <string>
#include <vector>

#include "harness/suites/checkpoint/saver/corrupt_fixture.h"

namespace lockstep::saver {

/// One damage of the disk, and how the load after it is judged.
struct Damage {
  std::string name;     ///< of the trial: "swap:rank-0-of-2.safetensors:3:7"
  std::string failure;  ///< a row of the table
  std::string place;
  std::string words;    ///< "blocks 3 and 7 of 512 bytes exchanged in rank-0-of-2.safetensors"
  std::function<Judgement(const CorruptFixture& corrupt_fixture)> judge;
};

/// Blocks of 512 and 4,096 bytes exchanged, zeroed, and those of the older checkpoint; whole files exchanged, missing, and
/// those of the older one. What changes no byte is left out.
std::vector<Damage> block_damages(const CorruptFixture& corrupt_fixture);
std::vector<Damage> file_damages(const CorruptFixture& corrupt_fixture);
/// Each field of the manifest, the commit record and the pointers changed or taken away, with the file's own seal made anew.
/// `whole`: also with the commit record made anew, as a forger would: what is then accepted is counted, and not claimed.
std::vector<Damage> field_damages(const CorruptFixture& corrupt_fixture);
/// Newer format, another config, files that nobody may read, folders that hold no checkpoint. Each must be refused, name what
/// it is about, and change nothing.
std::vector<Damage> bad_inputs(const CorruptFixture& corrupt_fixture);

}  // namespace lockstep::saver
