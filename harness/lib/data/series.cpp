#include "harness/lib/data/series.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "harness/base/files.h"
#include "harness/base/json.h"
#include "harness/base/text.h"

namespace lockstep {

std::vector<int> holdout_indices(int series, int held_out) {
  LOCKSTEP_CHECK(held_out >= 0 && held_out <= series, "no more series can be held out than there are");
  std::vector<int> indices;
  for (int64_t k = 0; k < held_out; ++k) {
    indices.push_back(static_cast<int>((k + 1) * series / held_out - 1));
  }
  return indices;
}

SeriesSplit split_series(int series, int held_out) {
  if (held_out >= series) {
    throw ConfigError(
        fmt::format("data.holdout_series {} leaves none of the {} training series", held_out, series));
  }
  SeriesSplit parts{{}, holdout_indices(series, held_out)};
  for (int i = 0; i < series; ++i) {
    if (!std::binary_search(parts.held_out.begin(), parts.held_out.end(), i)) parts.kept.push_back(i);
  }
  return parts;
}

ChannelScale channel_scale(const SeriesSet& set, std::span<const int> chosen) {
  const auto channels = static_cast<std::size_t>(set.channels);
  ChannelScale scale{std::vector<double>(channels, 0.0), std::vector<double>(channels, 1.0)};
  for (std::size_t channel = 0; channel < channels; ++channel) {
    // Every pass visits the channel's values in the same order, so that the sums have one meaning.
    const auto visit = [&](auto&& body) {
      for (const int index : chosen) {
        const std::vector<float>& series = set.series[static_cast<std::size_t>(index)];
        for (std::size_t i = channel; i < series.size(); i += channels) body(series[i]);
      }
    };
    double sum = 0;
    int64_t count = 0;
    float low = INFINITY, high = -INFINITY;
    visit([&](float value) {
      sum += value;
      ++count;
      low = std::min(low, value);
      high = std::max(high, value);
    });
    if (count == 0) continue;
    const double mean = sum / static_cast<double>(count);
    scale.mean[channel] = mean;
    // Rounding gives even a constant channel a tiny deviation: dividing by that would blow rounding up to
    // data.
    if (low == high) {
      scale.mean[channel] = low;
      continue;
    }
    double squares = 0;
    visit([&](float value) { squares += (value - mean) * (value - mean); });
    scale.sd[channel] = std::sqrt(squares / static_cast<double>(count));
  }
  return scale;
}

namespace {

namespace fs = std::filesystem;

constexpr int kSyntheticVersion = 1;
/// Generating takes a second for 2^24.
constexpr int64_t kMaxGenerated = int64_t{1} << 28;

struct SeriesFiles {
  std::string train, test;
};

SeriesFiles files_of(const DataConfig& config) {
  SeriesFiles files{config.train_file, config.test_file};
  if (config.source == DataSource::basic_motions) {
    const std::string folder = data_folder();
    if (files.train.empty()) files.train = folder + "/BasicMotions_TRAIN.ts";
    if (files.test.empty()) files.test = folder + "/BasicMotions_TEST.ts";
  } else if (files.train.empty() || files.test.empty()) {
    throw ConfigError(
        fmt::format("data.source ts_files needs data.train_file and data.test_file; data.{} is empty",
                    files.train.empty() ? "train_file" : "test_file"));
  }
  return files;
}

/// A missing file that the user did not name is not the user's to find: say what brings it.
void require_basic_motions(const DataConfig& config, const SeriesFiles& files) {
  if (config.source != DataSource::basic_motions) return;
  std::vector<ConfigProblem> problems;
  for (const std::string* file : {&files.train, &files.test}) {
    std::error_code ignored;
    if (fs::exists(*file, ignored)) continue;
    problems.push_back(
        {*file, 0, 0,
         "no such file; in a clone run ci/bootstrap, which fetches BasicMotions; else name its folder in "
         "LOCKSTEP_DATA, or use generated data: --set data.source=synthetic",
         ""});
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

/// Each file's own hash first, so that bytes cannot move from one file to the other unseen.
std::string hash_of_files(const std::string& train, const std::string& test) {
  return long_hash_in_hex(long_hash_in_hex(train) + long_hash_in_hex(test));
}

}  // namespace

void require_generable(const DataConfig& config) {
  if (int64_t{config.series} * config.series_steps > kMaxGenerated / config.channels)
    throw ConfigError("data.series * data.series_steps * data.channels is more than 2^28 values");
}

std::string hash_of_generator(const DataConfig& config) {
  std::string text = fmt::format("synthetic {} series {} steps {} channels {} seed {}", kSyntheticVersion,
                                 config.series, config.series_steps, config.channels, config.seed);
  if (config.correlation > 0)
    text += fmt::format(" correlation {} block {}", config.correlation, config.block);
  return long_hash_in_hex(text);
}

SourceSeries load_series(const DataConfig& config) {
  SourceSeries source;
  if (config.source == DataSource::synthetic) {
    require_generable(config);
    source.train = synthetic_series(config, 0);
    source.test = synthetic_series(config, 1);
    source.hash = hash_of_generator(config);
    return source;
  }
  SeriesFiles files = files_of(config);
  require_basic_motions(config, files);
  // Read once: what is hashed is what is trained on, whoever writes to the files meanwhile.
  const std::string train_bytes = read_data_file(files.train), test_bytes = read_data_file(files.test);
  source.train = parse_ts(train_bytes, files.train);
  source.test = parse_ts(test_bytes, files.test);
  source.hash = hash_of_files(train_bytes, test_bytes);
  if (source.train.channels != source.test.channels) {
    throw ConfigError({ConfigProblem{files.test, 0, 0,
                                     fmt::format("has {} dimensions, but the training file {} has {}",
                                                 source.test.channels, files.train, source.train.channels),
                                     ""}});
  }
  source.train_file = std::move(files.train);
  source.test_file = std::move(files.test);
  return source;
}

const char* title_of(DataSource source) {
  switch (source) {
    case DataSource::basic_motions:
      return "BasicMotions";
    case DataSource::synthetic:
      return "generated series";
    case DataSource::ts_files:
      return "series from files";
  }
  return "series";
}

// Every class is a motion: a rhythm, and for each channel the weights and phases of its first three
// harmonics. A series plays that motion at its own speed, from its own moment, with its own strength, under
// noise. So the next chunk follows from the context up to noise, and series of one class resemble each other
// without being equal.
namespace {

constexpr int kClasses = 4;
constexpr int kHarmonics = 3;
constexpr double kNoise = 0.15;

// What a draw is for; a part of its key. Changing one of them, or the arithmetic below, makes other data:
// raise kSyntheticVersion then.
enum class Draw : uint64_t {
  class_rhythm = 1,
  weight,
  harmonic_phase,
  offset,
  speed,
  moment,
  strength,
  noise
};

/// sin(2 pi turns) from additions and multiplications alone: libm's last bits differ from machine to machine.
double sine_of_turns(double turns) {
  double x = turns - std::floor(turns);           // [0, 1)
  if (x >= 0.75) x -= 1.0;                        // [-1/4, 3/4)
  if (x > 0.25) x = 0.5 - x;                      // [-1/4, 1/4]
  const double angle = x * 6.283185307179586477;  // [-pi/2, pi/2]: Taylor to degree 17 is right to 1e-13
  const double square = angle * angle;
  double sum = 1.0;
  for (int k = 16; k >= 2; k -= 2) sum = 1.0 - sum * square / static_cast<double>(k * (k + 1));
  return angle * sum;
}

double uniform(uint64_t key, double low, double high) {
  return low + (high - low) * unit_interval(mix64(key));
}

/// Near to a normal of mean 0 and standard deviation 1 (the sum of four uniforms), without logarithms.
double near_normal(uint64_t key) {
  double sum = 0;
  for (uint64_t i = 0; i < 4; ++i) sum += unit_interval(keyed(key, i));
  return (sum - 2.0) * 1.7320508075688772;
}

struct ClassChannel {
  double weight[kHarmonics], phase[kHarmonics], offset;
};

ClassChannel class_channel(uint64_t seed, int label, int channel) {
  ClassChannel shape{};
  for (int k = 0; k < kHarmonics; ++k) {
    shape.weight[k] = uniform(keyed(seed, Draw::weight, label, channel, k), -1.0, 1.0) / (k + 1);
    shape.phase[k] = uniform(keyed(seed, Draw::harmonic_phase, label, channel, k), 0.0, 1.0);
  }
  shape.offset = uniform(keyed(seed, Draw::offset, label, channel), -0.5, 0.5);
  return shape;
}

}  // namespace

SeriesSet synthetic_series(const DataConfig& config, int part) {
  const auto seed = static_cast<uint64_t>(config.seed);
  SeriesSet set;
  set.channels = config.channels;
  const int classes = std::min(kClasses, std::max(config.series, 1));
  for (int s = 0; s < config.series; ++s) {
    // Class by class, as archives list them.
    const auto label = static_cast<int>(static_cast<int64_t>(s) * classes / config.series);
    const double cycles_per_step =
        uniform(keyed(seed, Draw::class_rhythm, label), 0.9, 1.1) * (0.03 + 0.025 * label);
    const double speed = uniform(keyed(seed, Draw::speed, part, s), 0.9, 1.1) * cycles_per_step;
    const double moment = uniform(keyed(seed, Draw::moment, part, s), 0.0, 1.0);
    const double strength = uniform(keyed(seed, Draw::strength, part, s), 0.7, 1.3);
    std::vector<float> values(static_cast<std::size_t>(config.series_steps) *
                              static_cast<std::size_t>(config.channels));
    for (int c = 0; c < config.channels; ++c) {
      const ClassChannel shape = class_channel(seed, label, c);
      for (int t = 0; t < config.series_steps; ++t) {
        double value = shape.offset;
        for (int k = 0; k < kHarmonics; ++k) {
          value +=
              strength * shape.weight[k] * sine_of_turns((k + 1) * (moment + speed * t) + shape.phase[k]);
        }
        value += kNoise * near_normal(keyed(seed, Draw::noise, part, s, t, c));
        values[static_cast<std::size_t>(t) * static_cast<std::size_t>(config.channels) +
               static_cast<std::size_t>(c)] = static_cast<float>(value);
      }
    }
    set.series.push_back(std::move(values));
    set.labels.push_back("motion" + std::to_string(label));
  }
  return set;
}

std::string find_data_folder(const std::string& folder) {
  std::error_code error;
  fs::path place = fs::absolute(folder, error);
  while (!error) {
    const fs::path candidate = place / ".lockstep" / "data";
    if (fs::is_directory(candidate, error)) return candidate.string();
    error.clear();  // an unreadable folder on the way is as good as an empty one
    if (!place.has_relative_path()) break;
    place = place.parent_path();
  }
  return "";
}

std::string data_folder() {
  if (const char* chosen = std::getenv("LOCKSTEP_DATA"); chosen != nullptr && *chosen != '\0') return chosen;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return data_folder_of(error ? "." : program.parent_path().string());
}

std::string data_folder_of(const std::string& program_folder) {
  std::error_code error;
  const fs::path share = fs::path(program_folder).parent_path() / "share" / "lockstep";
  if (fs::is_directory(share, error)) return (share / "data").string();
  const std::string found = find_data_folder(program_folder);
  return found.empty() ? program_folder + "/.lockstep/data" : found;
}

namespace {

constexpr std::size_t kMaxProblems = 20;
constexpr int kMaxDimensions = 4096;
constexpr std::size_t kShownBytes = 24;
constexpr std::size_t kShownWords = 12;

/// Thrown inside the parser once enough problems are known.
struct EnoughProblems {};

constexpr std::string_view kSpaces = " \t\r";

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  text.remove_suffix(text.size() - (text.find_last_not_of(kSpaces) + 1));
  return text;
}

/// One part more than there are separators; an empty text has one part.
std::vector<std::string_view> parts_of(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (std::size_t end; (end = text.find(at)) != std::string_view::npos; text.remove_prefix(end + 1)) {
    parts.push_back(text.substr(0, end));
  }
  parts.push_back(text);
  return parts;
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

/// The file's own text inside a message: cut short, and without bytes that a terminal would act on.
std::string shown(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, kShownBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  if (text.size() <= kShownBytes) return result;
  // A cut through a character of several bytes would leave text that is not UTF-8.
  while (!result.empty() && (static_cast<unsigned char>(result.back()) & 0xc0) == 0x80) result.pop_back();
  if (!result.empty() && static_cast<unsigned char>(result.back()) >= 0xc0) result.pop_back();
  return result + "…";
}

std::string quoted(std::string_view text) { return std::string("\"") += shown(text) + "\""; }

/// The first of them, for a message.
std::string listed(const std::vector<std::string>& words) {
  std::string result;
  for (std::size_t i = 0; i < words.size() && i < kShownWords; ++i) {
    result += (i == 0 ? "" : ", ") + shown(words[i]);
  }
  return words.size() > kShownWords ? result + ", …" : result;
}

class TsParser {
 public:
  TsParser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  SeriesSet parse() {
    try {
      parse_lines();
    } catch (const EnoughProblems&) {
    }
    if (!problems_.empty()) throw ConfigError(std::move(problems_));
    return std::move(set_);
  }

 private:
  void parse_lines();
  void header(std::string_view line);
  void class_labels(std::string_view line, const std::vector<std::string_view>& words);
  void data_line(std::string_view line);
  /// Splits one dimension's text into values_ and its length into lengths_.
  void dimension(std::string_view field);
  std::optional<float> number(std::string_view text);
  void label(std::string_view field);
  void check_lengths(std::string_view line, std::size_t dimensions);

  bool boolean(std::string_view value, std::string_view name);
  int count_of(std::string_view value, std::string_view name, int most);

  /// `at` is a part of the file: its place gives the column.
  void problem(std::string_view at, const std::string& message) {
    const char* line_start = text_.data() + line_start_;
    const auto column = at.data() == nullptr ? 1 : static_cast<int>(at.data() - line_start) + 1;
    add({file_, line_, column, message, ""});
  }
  void add(ConfigProblem problem) {
    problems_.push_back(std::move(problem));
    if (problems_.size() < kMaxProblems) return;
    problems_.push_back(
        {file_, 0, 0, fmt::format("the first {} problems are shown; there may be more", kMaxProblems), ""});
    throw EnoughProblems{};
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t line_start_ = 0;
  int line_ = 0;
  bool last_line_ = false;  // the file ends in this line, without a line break: it may be cut short

  std::set<std::string> headers_;
  int dimensions_ = 0;     // 0: not known yet
  int series_length_ = 0;  // 0: may differ from series to series
  bool labelled_ = false;
  bool target_ = false;  // @targetLabel: the last field is a number to predict, kept as text
  std::vector<std::string> labels_;

  std::vector<ConfigProblem> problems_;
  SeriesSet set_;
  std::vector<float> values_;         // of one line, dimension after dimension
  std::vector<std::size_t> lengths_;  // of each dimension of the line
};

bool TsParser::boolean(std::string_view value, std::string_view name) {
  const std::string word = lower(value);
  if (word == "true") return true;
  if (word != "false") problem(value, fmt::format("@{} is true or false, not {}", name, quoted(value)));
  return false;
}

int TsParser::count_of(std::string_view value, std::string_view name, int most) {
  int count = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
  if (error != std::errc{} || end != value.data() + value.size() || count < 1 || count > most) {
    problem(value, fmt::format("@{} is a whole number from 1 to {}, not {}", name, most, quoted(value)));
    return 0;
  }
  return count;
}

void TsParser::class_labels(std::string_view line, const std::vector<std::string_view>& words) {
  labelled_ = boolean(words[1], "classLabel");
  if (labelled_ && words.size() == 2) problem(line, "@classLabel true lists no class");
  for (std::size_t i = 2; i < words.size(); ++i) labels_.emplace_back(words[i]);
}

void TsParser::header(std::string_view line) {
  std::vector<std::string_view> words;
  for (std::size_t begin = 0, end = 0; (begin = line.find_first_not_of(kSpaces, end)) != std::string_view::npos;) {
    end = std::min(line.find_first_of(kSpaces, begin), line.size());
    words.push_back(line.substr(begin, end - begin));
  }
  const std::string name = lower(words[0].substr(1));
  if (!headers_.insert(name == "dimension" ? "dimensions" : name).second) {
    problem(words[0], fmt::format("{} stands twice", quoted(words[0])));
    return;
  }
  if (name == "data") {
    if (words.size() > 1)
      problem(words[1], "nothing may follow @data on its line; series start on the next line");
    return;
  }
  if (words.size() < 2) {
    problem(words[0], fmt::format("{} has no value", quoted(words[0])));
  } else if (name == "timestamps") {
    if (boolean(words[1], "timeStamps")) problem(words[1], "series with time stamps are not supported");
  } else if (name == "univariate") {
    if (boolean(words[1], "univariate") && dimensions_ == 0) dimensions_ = 1;
  } else if (name == "dimensions" || name == "dimension") {
    dimensions_ = count_of(words[1], "dimensions", kMaxDimensions);
  } else if (name == "serieslength") {
    series_length_ = count_of(words[1], "seriesLength", 1 << 30);
  } else if (name == "classlabel") {
    class_labels(line, words);
  } else if (name == "targetlabel") {
    target_ = boolean(words[1], "targetLabel");
  } else if (name == "missing" || name == "equallength") {
    boolean(words[1], words[0].substr(1));
  } else if (name != "problemname") {
    problem(words[0],
            fmt::format("unknown header {}; known are @problemName, @timeStamps, @missing, @univariate, "
                        "@dimensions, @equalLength, @seriesLength, @classLabel, @targetLabel and @data",
                        quoted(words[0])));
  }
}

std::optional<float> TsParser::number(std::string_view text) {
  const std::string_view value = trimmed(text);
  if (value.empty()) {
    problem(text, "a value is empty");
    return std::nullopt;
  }
  if (value == "?") {
    problem(value, "a value is missing (?); series with missing values are not supported");
    return std::nullopt;
  }
  std::string_view digits = value;
  if (digits.size() > 1 && digits[0] == '+' && digits[1] != '-') digits.remove_prefix(1);
  float result = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), result);
  if (error == std::errc::invalid_argument || end != digits.data() + digits.size()) {
    problem(value, fmt::format("{} is not a number", quoted(value)));
    return std::nullopt;
  }
  if (error == std::errc::result_out_of_range) {
    // Too small is as good as 0; too large has no float.
    double wide = 0;
    const auto [wide_end, wide_error] = std::from_chars(digits.data(), digits.data() + digits.size(), wide);
    if (wide_error == std::errc{} && std::abs(wide) < 1.0) return static_cast<float>(wide);
    problem(value, fmt::format("{} lies outside the range of a 32-bit float", quoted(value)));
    return std::nullopt;
  }
  if (!std::isfinite(result)) {
    problem(value, fmt::format("{} is not a finite number", quoted(value)));
    return std::nullopt;
  }
  return result;
}

void TsParser::dimension(std::string_view field) {
  const std::vector<std::string_view> values = parts_of(field, ',');
  for (const std::string_view value : values) {
    if (const std::optional<float> parsed = number(value)) values_.push_back(*parsed);
  }
  lengths_.push_back(values.size());
}

void TsParser::label(std::string_view field) {
  const std::string_view value = trimmed(field);
  if (target_ || labels_.empty()) {  // an empty @classLabel has been refused where it stands
    set_.labels.emplace_back(value);
    return;
  }
  for (const std::string& known : labels_) {
    if (lower(known) == lower(value)) {
      set_.labels.push_back(known);
      return;
    }
  }
  problem(
      field,
      fmt::format("the class {} is not one of @classLabel's: {}{}", quoted(value), listed(labels_),
                  last_line_ ? "; the file ends in this line without a line break: is it cut short?" : ""));
}

void TsParser::check_lengths(std::string_view line, std::size_t dimensions) {
  for (std::size_t d = 1; d < dimensions; ++d) {
    if (lengths_[d] == lengths_[0]) continue;
    problem(line, fmt::format(
                      "dimension {} has {}, dimension 1 has {}; all dimensions of a series are equally long",
                      d + 1, counted(static_cast<int64_t>(lengths_[d]), "step"), lengths_[0]));
    return;
  }
  if (series_length_ > 0 && lengths_[0] != static_cast<std::size_t>(series_length_)) {
    problem(line, fmt::format("the series has {}, but @seriesLength is {}",
                              counted(static_cast<int64_t>(lengths_[0]), "step"),
                              series_length_));
  }
}

void TsParser::data_line(std::string_view line) {
  const std::vector<std::string_view> fields = parts_of(line, ':');
  const std::size_t label_fields = labelled_ || target_ ? 1 : 0;
  if (dimensions_ == 0 && fields.size() > label_fields && fields.size() - label_fields <= kMaxDimensions) {
    dimensions_ = static_cast<int>(fields.size() - label_fields);
  }
  const auto dimensions = static_cast<std::size_t>(dimensions_);
  if (dimensions == 0 || fields.size() != dimensions + label_fields) {
    const std::string cut = last_line_ && fields.size() < dimensions + label_fields
                                ? "; the file ends in this line without a line break: is it cut short?"
                                : "";
    problem(line, fmt::format("the line has {} separated by ':', but {}{} {} expected{}",
                              counted(static_cast<int64_t>(fields.size()), "field"),
                              counted(static_cast<int64_t>(dimensions), "dimension"),
                              label_fields ? " and a class label" : "",
                              dimensions + label_fields == 1 ? "was" : "were", cut));
    return;
  }
  values_.clear();
  lengths_.clear();
  const std::size_t problems_before = problems_.size();
  for (std::size_t d = 0; d < dimensions; ++d) dimension(fields[d]);
  check_lengths(line, dimensions);
  if (label_fields > 0) label(fields.back());
  if (problems_.size() > problems_before) return;

  const std::size_t steps = lengths_[0];
  std::vector<float> series(steps * dimensions);
  for (std::size_t d = 0; d < dimensions; ++d) {
    for (std::size_t t = 0; t < steps; ++t) series[t * dimensions + d] = values_[d * steps + t];
  }
  set_.series.push_back(std::move(series));
}

void TsParser::parse_lines() {
  if (text_.empty()) {
    add({file_, 0, 0, "the file is empty", ""});
    return;
  }
  std::size_t position = text_.substr(0, 3) == "\xef\xbb\xbf" ? 3 : 0;
  bool in_data = false;
  bool any_series = false;
  while (position < text_.size()) {
    const std::size_t end = text_.find('\n', position);
    last_line_ = end == std::string_view::npos;
    const std::string_view whole =
        text_.substr(position, last_line_ ? std::string_view::npos : end - position);
    line_start_ = position;
    ++line_;
    position = last_line_ ? text_.size() : end + 1;

    const std::string_view line = trimmed(whole);
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '@') {
      if (in_data) {
        problem(line, "a header after @data");
        continue;
      }
      header(line);
      in_data = headers_.count("data") > 0;
    } else if (in_data) {
      any_series = true;
      data_line(line);
    } else {
      problem(line, "data before @data");
      throw EnoughProblems{};
    }
  }
  if (!in_data) {
    add({file_, line_, 1, "the file ends without @data: is it cut short?", ""});
  } else if (!any_series) {
    add({file_, line_, 1, "no series follows @data: is the file cut short?", ""});
  }
  set_.channels = dimensions_;
}

}  // namespace

SeriesSet parse_ts(const std::string& text, const std::string& file_name) {
  return TsParser(text, file_name).parse();
}

std::string read_data_file(const std::string& path) {
  FileText file = read_file(path);
  if (!file) throw ConfigError({ConfigProblem{path, 0, 0, file.problem, ""}});
  return std::move(file.text);
}

}  // namespace lockstep
