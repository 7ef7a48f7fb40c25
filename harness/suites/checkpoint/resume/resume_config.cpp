#include "harness/suites/checkpoint/resume/resume_config.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "harness/suites/checkpoint/resume/resume.h"
#include "harness/suites/engine/section_schema.h"
#include "harness/verdict/config/field_schema.h"
#include "harness/verdict/config/ranges.h"

namespace lockstep::resume {
namespace {

constexpr std::array kExperiments{
    Experiment{"stops", "stopped at every step, once and twice, and with each kind of state left out", make_stops},
    Experiment{"reshard", "goes on on another number of ranks, and back", make_reshard},
    Experiment{"cycles", "processes that are killed and restarted, again and again", make_cycles},
    Experiment{"preemption", "processes that are told to end by SIGTERM or SIGUSR1", make_preemption}};

std::vector<std::string_view> experiment_names() {
  std::vector<std::string_view> names;
  for (const Experiment& each : kExperiments) names.push_back(each.name);
  return names;
}

constexpr Range kSeconds{0.05, 86400};

#define RESUME(member, ...)                                                                        \
  Field<ResumeConfig> {                                                                            \
    {"resume." #member, __VA_ARGS__}, [](ResumeConfig& c) -> FieldRef { return ref_to(c.member); } \
  }
const std::array kFields{
    RESUME(experiment, {}, "",
        "what is done to the run: `stops`, stopped at every step, also with a kind of state left out; `reshard`, "
        "resumed on other numbers of ranks and back; `cycles`, killed and restarted again and again; "
        "`preemption`, ended by SIGTERM or SIGUSR1", Words::any, Setter::user, experiment_names),
    RESUME(seed, Range{0, 1e15}, "", "seed of the toy trainer's data, weights and draws, and of kills and signals"),
    RESUME(ranks, Range{1, 64}, "", "ranks of the run; in `cycles` and `preemption` the largest number"),
    RESUME(stops, Range{1, 10000}, "steps", "`stops`: the last step at which a run is stopped; the first is 1"),
    RESUME(after, Range{1, 10000}, "steps", "`stops`: steps after resuming that must have the bits of the control run"),
    RESUME(mutants, {}, "", "also try the mistakes that the experiment plants"),
    RESUME(pair_stops, Range{1, 10000}, "steps",
        "`stops`: steps at which every two kinds of state are left out together; default `[31, 43]`"),
    RESUME(worlds, Range{1, 64}, "ranks", "`reshard`: numbers of ranks, from each to each; default `[1, 2, 3, 4, 5, 8]`"),
    RESUME(cycles, Range{1, 1e7}, "", "`cycles`: kills in all"),
    RESUME(kills_of_a_run, Range{1, 1e5}, "", "`cycles`: kills in a chain of runs, the last of which runs to its end"),
    RESUME(signals, Range{1, 1e7}, "", "`preemption`: runs that receive a signal at a random moment"),
    RESUME(save_every, Range{1, 10000}, "steps", "`cycles`, `preemption`: steps from one save to the next"),
    RESUME(keep_last, Range{2, 1000}, "checkpoints", "`cycles`, `preemption`: checkpoints that are kept"),
    RESUME(steps, Range{1, 100000}, "", "`cycles`: steps of a whole run"),
    RESUME(grace_s, kSeconds, "s", "`preemption`: time from the first signal to the end of the run"),
    RESUME(deadline_s, kSeconds, "s", "a rank that shows no progress for this long is counted as hung"),
    RESUME(sync, {}, "",
        "`cycles`, `preemption`: fsync reaches the disk and takes its time; a kill cannot show that one is "
        "missing"),
};
#undef RESUME

}  // namespace

std::span<const Experiment> experiments() { return kExperiments; }

ResumeConfig read_resume_config(const SuiteSource& source, Problems& problems) {
  ResumeConfig config;
  read_fields<ResumeConfig>(source, kFields, config, problems);
  return config;
}

nlohmann::ordered_json resume_schema() {
  const ResumeConfig defaults;
  SchemaJson schema = object_schema();
  add_fields(schema, kFields, defaults);
  return schema;
}

}  // namespace lockstep::resume

namespace lockstep {
namespace {

std::unique_ptr<Suite> make(const SuiteSource& source, Problems& problems) {
  const resume::ResumeConfig config = resume::read_resume_config(source, problems);
  for (const resume::Experiment& each : resume::experiments()) {
    if (each.name == config.experiment) return each.make(config);
  }
  return nullptr;
}

}  // namespace

const SuiteKind& resume_suite() {
  static const SuiteKind kKind{"resume",
                                    "a toy run that is stopped, resharded, killed or told to end, and resumed", &make,
                                    &resume::resume_schema};
  return kKind;
}

}  // namespace lockstep
