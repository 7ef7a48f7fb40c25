#include "harness/lib/rewards/score_call.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <exception>
#include <future>
#include <memory>
#include <thread>

#include "harness/lib/rewards/statistics.h"

namespace lockstep::rewards {
namespace {

/// What came back, or what was thrown, in words.
struct Answer {
  std::vector<double> values;
  std::string thrown;
};

Answer answer_of(const ScoreFunction& score, const std::vector<int64_t>& ids) {
  try {
    return {score(ids), ""};
  } catch (const std::exception& error) {
    return {{}, error.what()[0] == '\0' ? "an exception without words" : error.what()};
  } catch (...) {
    return {{}, "something that is no exception"};
  }
}

ScoreOutcome checked(Answer answer, const std::vector<int64_t>& ids, bool refuse_not_finite) {
  if (!answer.thrown.empty()) return {{}, {"score-threw", "the reward function threw: " + answer.thrown}};
  if (answer.values.size() != ids.size()) {
    return {{},
            {"score-length",
             fmt::format("the reward function gave {} rewards for {} samples", answer.values.size(), ids.size())}};
  }
  for (std::size_t i = 0; refuse_not_finite && i < ids.size(); ++i) {
    if (std::abs(answer.values[i]) <= kLargestReward) continue;
    return {{},
            {"score-not-finite", fmt::format("the reward function gave {} for sample {} (element {})",
                                             number_in_words(answer.values[i]), ids[i], i)}};
  }
  return {std::move(answer.values), {}};
}

}  // namespace

ScoreOutcome call_score(const ScoreFunction& score, const std::vector<int64_t>& ids, const ScoreOptions& options) {
  if (options.deadline_s <= 0) return checked(answer_of(score, ids), ids, options.refuse_not_finite);
  // The thread may outlive this call, and then owns all that it touches.
  const auto promise = std::make_shared<std::promise<Answer>>();
  std::future<Answer> answer = promise->get_future();
  std::thread([promise, score, ids] { promise->set_value(answer_of(score, ids)); }).detach();
  if (answer.wait_for(std::chrono::duration<double>(options.deadline_s)) != std::future_status::ready) {
    return {{}, {"score-hung", fmt::format("the reward function gave no answer for {:g} s", options.deadline_s)}};
  }
  return checked(answer.get(), ids, options.refuse_not_finite);
}

}  // namespace lockstep::rewards
