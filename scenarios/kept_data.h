#pragma once
// Data without LibTorch that a process makes once and the ranks forked from it share.

#include <memory>
#include <string>
#include <utility>

#include "harness/verdict/config/field.h"
#include "harness/verdict/config/trainer_spec.h"

namespace lockstep {

/// The data of the newest config that asked; another one's takes its place. One thread asks.
template <class Data>
class KeptData {
 public:
  /// That of `make`, or what it gave when a config with the same keys data.* asked last. Throws what it throws.
  template <class Make>
  std::shared_ptr<const Data> of(const RunConfig& config, Make make) {
    std::string key;
    for (const RunField* field : fields_of(spec_of(config))) {
      if (field->spec.key.starts_with("data.")) key += text_of(field->of(config)) + '\n';
    }
    if (data_ == nullptr || key != key_) {
      data_ = nullptr;  // not both at once
      data_ = std::make_shared<const Data>(make());
      key_ = std::move(key);
    }
    return data_;
  }

 private:
  std::string key_;
  std::shared_ptr<const Data> data_;
};

}  // namespace lockstep
