#pragma once
// One slot's folders and processes: what is saved to, what stood there before, and the program that does both.

#include <memory>
#include <optional>
#include <string>

#include "harness/suites/engine/suite.h"
#include "harness/suites/foreign_saver/judge.h"
#include "harness/suites/foreign_saver/power_loss.h"
#include "harness/suites/foreign_saver/program_config.h"
#include "harness/suites/foreign_saver/tracer.h"

namespace lockstep::program {

class Bench {
 public:
  /// In OUT/work/<slot>, which is emptied. Runs the setup command. Throws ConfigError if that fails.
  Bench(const ProgramConfig& config, const SuiteRun& run, int slot);

  /// The folder that is saved to, absolute.
  const std::string& out() const { return out_; }
  void empty();    ///< the folder that is saved to
  void restore();  ///< what stood there before the save
  TracedRun save(const Intervention& intervention);
  /// After a restore(): with what stands there before it and after it, if `with_files`.
  Recording record(const Intervention& intervention, bool with_files);
  /// Resumes, or checks, from what stands in out(): fills the later half of `observed`.
  void resume(Observed& observed);
  /// What the last command printed: the last bytes.
  std::string printed() const { return tracer_.printed(); }

 private:
  TracedRun command(const std::string& text, const TraceOptions& options);
  TraceOptions options() const;
  TraceOptions watching(const Intervention& intervention) const;

  const ProgramConfig& config_;
  const SuiteRun& run_;
  std::string folder_, out_, before_, resumed_;
  Tracer tracer_;
};

}  // namespace lockstep::program
