#include "harness/judge/trace/writer.h"

#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <stdexcept>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "harness/base/json.h"
#include "harness/base/text.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr std::array<const char*, 4> kLevelNames = {"off", "hash", "stats", "full"};

}  // namespace

std::string header_to_json(const TraceHeader& header) {
  Json json = {
      {"config_hash", header.config_hash},
      {"level", kLevelNames[static_cast<std::size_t>(header.level)]},
      {"rank", header.rank},
      {"started_by", header.started_by},
      {"trainer", header.trainer},
      {"world_size", header.world_size},
  };
  if (header.declared) json["declared"] = to_json(*header.declared);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<TraceHeader> header_from_json(std::string_view text, std::string& why) {
  const Json json = parse_json(text);
  if (!json.is_object()) {
    why = "its header is not a JSON object";
    return std::nullopt;
  }
  TraceHeader header;
  std::string level;
  for (const auto& [key, to] : {std::pair("config_hash", &header.config_hash), {"trainer", &header.trainer},
                                {"started_by", &header.started_by}, {"level", &level}}) {
    const auto text = json_as<std::string>(json.value(key, Json()));
    if (!text) why = std::string("its header lacks the text \"") + key + '"';
    if (!text) return std::nullopt;
    *to = *text;
  }
  for (const auto& [key, to] : {std::pair("rank", &header.rank), {"world_size", &header.world_size}}) {
    const auto count = json_as<int>(json.value(key, Json()));
    if (!count || *count < 0 || *count > 1'000'000) why = std::string("its header lacks a sensible \"") + key + '"';
    if (!count || *count < 0 || *count > 1'000'000) return std::nullopt;
    *to = *count;
  }
  if (header.rank >= header.world_size) {
    why = "its header names rank " + std::to_string(header.rank) + " of " + std::to_string(header.world_size);
    return std::nullopt;
  }
  if (const auto found = json.find("declared"); found != json.end()) {
    const std::optional<Declared> declared = declared_from_json(*found, header.world_size, why);
    if (!declared) return std::nullopt;
    header.declared = std::make_shared<const Declared>(*declared);
  }
  for (std::size_t i = 0; i < kLevelNames.size(); ++i) {
    if (level != kLevelNames[i]) continue;
    header.level = static_cast<TraceLevel>(i);
    return header;
  }
  why = "its header names an unknown level: " + level;
  return std::nullopt;
}

namespace {

/// What is wrong with a declaration; caught where it is read.
class Wrong : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] void refuse(const std::string& key, const std::string& expected) {
  throw Wrong("its header declares \"" + key + "\", which is not " + expected);
}

/// A mistyped key would silence what it should bring.
void require_known(const Json& json, std::span<const std::string_view> keys) {
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::find(keys, key) != keys.end()) continue;
    const std::string_view near = nearest(key, keys);
    throw Wrong("its header declares \"" + key + "\", which is not a key of a declaration" +
                (near.empty() ? std::string() : "; did you mean \"" + std::string(near) + "\"?"));
  }
}

/// What the key holds; left as it is where there is no such key.
template <class T>
void take(const Json& json, const char* key, T& to, const char* expected, bool (*fits)(const T&) = nullptr) {
  const auto found = json.find(key);
  if (found == json.end()) return;
  auto value = json_as<T>(*found);
  if (!value || (fits && !fits(*value))) refuse(key, expected);
  to = *std::move(value);
}

void take(const Json& json, const char* key, std::string& to) { take(json, key, to, "a text"); }

void take(const Json& json, const char* key, double& to) {
  take<double>(json, key, to, "a finite number of 0 or more",
               [](const double& number) { return number >= 0 && std::isfinite(number); });
}

void take(const Json& json, const char* key, int64_t& to) {
  take<int64_t>(json, key, to, "a whole number of 1 or more", [](const int64_t& number) { return number >= 1; });
}

void take_one_of(const Json& json, const char* key, std::string& to, const std::set<std::string>& known,
                 const char* expected) {
  take(json, key, to);
  if (!to.empty() && !known.contains(to)) refuse(key, expected);
}

std::vector<int> ranks_of(const Json& json, const std::string& key, int world_size) {
  std::set<int> ranks;
  const bool list = json.is_array() && !json.empty();
  for (const Json& rank : list ? json : Json::array()) {
    const bool fits = rank.is_number_integer() && rank.get<int64_t>() >= 0 && rank.get<int64_t>() < world_size;
    if (!fits || !ranks.insert(rank.get<int>()).second) refuse(key, "a list of different ranks of this run");
  }
  if (!list) refuse(key, "a list of ranks");
  return {ranks.begin(), ranks.end()};
}

DeclaredOptimizer optimizer_of(const Json& json) {
  DeclaredOptimizer optimizer;
  static constexpr std::string_view kKeys[] = {"name", "momentum", "weight_decay", "eps", "betas"};
  if (!json.is_object()) refuse("optimizer", "an object");
  require_known(json, kKeys);
  take(json, "name", optimizer.name);
  if (optimizer.name.empty()) refuse("optimizer", "an object with a \"name\"");
  take(json, "momentum", optimizer.momentum);
  take(json, "weight_decay", optimizer.weight_decay);
  take(json, "eps", optimizer.eps);
  std::vector<double> betas = {optimizer.beta1, optimizer.beta2};
  take<std::vector<double>>(json, "betas", betas, "a list of two numbers",
                            [](const auto& numbers) { return numbers.size() == 2; });
  optimizer.beta1 = betas[0];
  optimizer.beta2 = betas[1];
  return optimizer;
}

DeclaredParameters parameters_of(const Json& json) {
  DeclaredParameters parameters;
  if (!json.is_object() || !json.contains("prefix")) refuse("parameters", "a list of objects with a \"prefix\"");
  constexpr std::string_view kKeys[] = {"prefix", "role", "rate_factor", "weight_decay"};
  require_known(json, kKeys);
  take(json, "prefix", parameters.prefix);
  take(json, "role", parameters.role);
  take(json, "rate_factor", parameters.rate_factor);
  if (json.contains("weight_decay")) take(json, "weight_decay", parameters.weight_decay.emplace());
  return parameters;
}

/// Every rank stands in one group.
void require_partition(const std::vector<std::vector<int>>& groups, int world_size) {
  std::set<int> seen;
  for (const std::vector<int>& ranks : groups)
    for (const int rank : ranks)
      if (!seen.insert(rank).second) refuse("replicas", "a list of groups without a rank in common");
  if (!groups.empty() && static_cast<int>(seen.size()) != world_size) {
    refuse("replicas", "a list of groups that hold every rank of this run");
  }
}

Declared read(const Json& json, int world_size) {
  constexpr std::string_view kKeys[] = {"strip_prefixes", "parameters", "optimizer",          "clip_norm", "accumulation",
                                        "global_batch",   "base_rate",  "precision",          "gradient_reduction",
                                        "groups",         "replicas",        "streams",            "average_decay"};
  Declared declared;
  if (!json.is_object()) refuse("declared", "an object");
  require_known(json, kKeys);
  take(json, "strip_prefixes", declared.strip_prefixes, "a list of texts");
  const Json parameters = json.value("parameters", Json::array());
  if (!parameters.is_array()) refuse("parameters", "a list of objects with a \"prefix\"");
  for (const Json& each : parameters) declared.parameters.push_back(parameters_of(each));
  if (const auto found = json.find("optimizer"); found != json.end()) declared.optimizer = optimizer_of(*found);
  take(json, "clip_norm", declared.clip_norm);
  take(json, "accumulation", declared.accumulation);
  take(json, "global_batch", declared.global_batch);
  take(json, "base_rate", declared.base_rate);
  take_one_of(json, "precision", declared.precision, {"float32", "float64", "bfloat16", "float16"},
              "float32, float64, bfloat16 or float16");
  take_one_of(json, "gradient_reduction", declared.gradient_reduction, {"mean", "sum"}, "mean or sum");
  const Json groups = json.value("groups", Json::object()), replicas = json.value("replicas", Json::array()),
             streams = json.value("streams", Json::object());
  if (!groups.is_object()) refuse("groups", "an object of lists of ranks");
  for (const auto& [name, ranks] : groups.items()) declared.groups[name] = ranks_of(ranks, "groups", world_size);
  if (!replicas.is_array()) refuse("replicas", "a list of lists of ranks");
  for (const Json& ranks : replicas) declared.replicas.push_back(ranks_of(ranks, "replicas", world_size));
  require_partition(declared.replicas, world_size);
  if (!streams.is_object()) refuse("streams", "an object of texts");
  for (const auto& [name, state] : streams.items())
    take_one_of(streams, name.c_str(), declared.streams[name], {"rank", "same", "sample"}, "rank, same or sample");
  take(json, "average_decay", declared.average_decay);
  return declared;
}

}  // namespace

const DeclaredParameters* entry_of(const std::vector<DeclaredParameters>& all, std::string_view parameter) {
  const DeclaredParameters* longest = nullptr;
  for (const DeclaredParameters& each : all) {
    if (parameter.starts_with(each.prefix) && (!longest || each.prefix.size() > longest->prefix.size())) {
      longest = &each;
    }
  }
  return longest;
}

std::optional<Declared> declared_from_json(const Json& json, int world_size, std::string& why) {
  try {
    return read(json, world_size);
  } catch (const Wrong& wrong) {
    why = wrong.what();
    return std::nullopt;
  }
}

Json to_json(const Declared& declared) {
  Json json = Json::object();
  if (!declared.strip_prefixes.empty()) json["strip_prefixes"] = declared.strip_prefixes;
  for (const DeclaredParameters& each : declared.parameters) {
    Json entry = {{"prefix", each.prefix}, {"rate_factor", each.rate_factor}};
    if (!each.role.empty()) entry["role"] = each.role;
    if (each.weight_decay) entry["weight_decay"] = *each.weight_decay;
    json["parameters"].push_back(std::move(entry));
  }
  if (const auto& it = declared.optimizer) {
    json["optimizer"] = {{"name", it->name},   {"momentum", it->momentum},
                         {"eps", it->eps},     {"weight_decay", it->weight_decay},
                         {"betas", {it->beta1, it->beta2}}};
  }
  if (declared.clip_norm > 0) json["clip_norm"] = declared.clip_norm;
  if (declared.accumulation > 1) json["accumulation"] = declared.accumulation;
  if (declared.global_batch > 0) json["global_batch"] = declared.global_batch;
  if (declared.base_rate > 0) json["base_rate"] = declared.base_rate;
  if (!declared.precision.empty()) json["precision"] = declared.precision;
  if (!declared.gradient_reduction.empty()) json["gradient_reduction"] = declared.gradient_reduction;
  if (!declared.groups.empty()) json["groups"] = declared.groups;
  if (!declared.replicas.empty()) json["replicas"] = declared.replicas;
  if (!declared.streams.empty()) json["streams"] = declared.streams;
  if (declared.average_decay > 0) json["average_decay"] = declared.average_decay;
  return json;
}

namespace {

struct BytesHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view bytes) const { return XXH3_64bits(bytes.data(), bytes.size()); }
};

/// Numbers byte strings in the order in which they are first seen.
class Interner {
 public:
  /// The number of `bytes`, and whether it is new.
  std::pair<uint32_t, bool> number(std::string_view bytes) {
    const auto known = numbers_.find(bytes);
    if (known != numbers_.end()) return {known->second, false};
    const auto next = static_cast<uint32_t>(order_.size());
    order_.push_back(&numbers_.emplace(bytes, next).first->first);
    return {next, true};
  }
  const std::string& bytes(uint32_t number) const { return *order_[number]; }

 private:
  std::unordered_map<std::string, uint32_t, BytesHash, std::equal_to<>> numbers_;
  std::vector<const std::string*> order_;  // nodes of an unordered_map stay where they are
};

}  // namespace

struct TraceWriter::Impl {
  Files& files;
  std::string path;
  TraceHeader header;
  std::size_t part_bytes = kMostPartBytes;
  int fd = -1;
  bool in_step = false;
  bool broken = false;  // a write failed: the destructor must not add to what is there
  int64_t step = 0;
  int64_t last_step = std::numeric_limits<int64_t>::min();
  uint64_t steps_written = 0;
  uint32_t definitions_written = 0;
  Interner definitions, sequences;
  std::vector<uint32_t> sequence;          // definitions of this step's records
  std::string data;                        // this step's records
  std::string definition, frame;  // scratch, kept for their capacity

  explicit Impl(Files& through) : files(through) {}
  ~Impl() {
    if (fd >= 0) files.close(fd);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// The record's data are appended to what this returns.
  ByteSink add(const Definition& what) {
    LOCKSTEP_CHECK(in_step, "a record outside of begin_step and end_step: " + path);
    LOCKSTEP_CHECK(what.name.size() <= kMaxTextBytes && what.shape.size() <= kMaxDimensions,
                   "a name of more than 1,024 bytes or a tensor of more than 16 dimensions: " + path);
    if (data.size() >= part_bytes) write_records(FrameType::step_part);
    definition.clear();
    ByteSink sink(definition);
    append_definition(sink, what);
    sequence.push_back(definitions.number(definition).first);
    return ByteSink(data);
  }

  /// What a reader made of a record, as it was.
  void add_record(const Record& record) {
    Definition what{.phase = record.phase,
                    .replicated = record.replicated,
                    .has_stats = record.has_stats,
                    .dtype = record.dtype,
                    .shape = record.shape,
                    .name = record.name};
    if (record.phase == Phase::collective) {
      add_call(record.collective, what);
    } else if (record.is_scalar) {
      what.kind = RecordKind::scalar;
      add(what).raw(record.value);
    } else if (record.phase == Phase::random) {
      what.kind = RecordKind::random;
      add_stream(what, record.stats.hash, static_cast<uint64_t>(record.value));
    } else if (record.phase == Phase::samples) {
      what.shape = {};
      add(what).ids(record.ids);
    } else {
      what.kind = RecordKind::tensor;
      what.has_ids = !record.ids.empty();
      what.has_payload = header.level == TraceLevel::full || !record.payload.empty();
      what.has_dot = record.has_stats && !std::isnan(record.dot);
      what.placement = record.placement.get();
      add_tensor(what, record.stats, record.ids, record.dot).bytes(record.payload.data(), record.payload.size());
    }
  }

  void add_call(const CollectiveRecord& record, Definition what = {.phase = Phase::collective}) {
    what.kind = RecordKind::collective;
    what.name = record.op;
    what.reduction = record.reduction;
    what.group = record.group;
    what.tag = record.tag;
    what.root = record.root;
    what.dtype = record.dtype;
    what.shape = record.shape;
    ByteSink sink = add(what);
    sink.raw(record.hash_in);
    sink.raw(record.hash_out);
  }

  void add_stream(const Definition& what, uint64_t hash, uint64_t draws) {
    ByteSink sink = add(what);
    sink.raw(hash);
    sink.varint(draws);
  }

  /// Its values, if they are kept, come after these.
  ByteSink add_tensor(const Definition& what, const TensorStats& stats, std::span<const int64_t> ids, double dot) {
    ByteSink sink = add(what);
    sink.raw(stats.hash);
    if (what.has_stats) {
      for (const double each : {stats.norm, stats.min, stats.max}) {
        if (fits_float32(what.dtype)) sink.raw(static_cast<float>(each));
        else sink.raw(each);
      }
      sink.varint(stats.nonfinite);
    }
    if (what.has_dot) sink.raw(dot);
    if (what.has_ids) sink.ids(ids);
    return sink;
  }

  [[noreturn]] void fail(const char* doing, std::error_code error) {
    broken = true;
    throw MachineError(path + ": cannot " + doing + ": " + error.message());
  }

  /// Room for a frame's head behind what `frame` holds; where it begins.
  std::size_t begin_frame() {
    const std::size_t start = frame.size();
    frame.append(kFrameHeadBytes, '\0');
    return start;
  }

  /// Seals the frame that began there, and writes all.
  void end_frame(FrameType type, std::size_t start) {
    const std::size_t content = frame.size() - start - kFrameHeadBytes;
    LOCKSTEP_CHECK(content <= std::numeric_limits<uint32_t>::max(), "a tensor of 3 GiB or more: " + path);
    const uint64_t head = frame_head(static_cast<uint32_t>(content), type);
    std::memcpy(frame.data() + start, &head, sizeof head);
    ByteSink sink(frame);
    sink.raw(static_cast<uint64_t>(XXH3_64bits(frame.data() + start, frame.size() - start)));
    if (const auto error = files.write(fd, frame)) fail("write the trace", error);
    frame.clear();
  }

  void write_step(FrameType type) {
    write_records(type);
    ++steps_written;
    in_step = false;
    last_step = step;
  }

  void write_records(FrameType type) {
    const std::size_t start = begin_frame();
    ByteSink sink(frame);
    sink.varint(zigzag(step));
    const std::string_view key(reinterpret_cast<const char*>(sequence.data()),
                               sequence.size() * sizeof(uint32_t));
    const auto [number, is_new] = sequences.number(key);
    if (!is_new) {
      sink.varint(number + uint64_t{1});
    } else {
      sink.varint(0);
      sink.varint(sequence.size());
      for (uint32_t id : sequence) {
        sink.varint(id);
        if (id == definitions_written) {
          sink.text(definitions.bytes(id));
          ++definitions_written;
        }
      }
    }
    frame.append(data);
    end_frame(type, start);
    data.clear();
    sequence.clear();
  }
};

TraceWriter::TraceWriter(const std::string& path, const TraceHeader& header, Files& files, std::size_t part_bytes) {
  if (header.level == TraceLevel::off) return;
  impl_ = std::make_unique<Impl>(files);
  impl_->path = path;
  impl_->header = header;
  impl_->part_bytes = part_bytes;
  if (const auto error = files.open(path, OpenFor::replacing, impl_->fd)) {
    impl_->fail("create the trace", error);
  }
  ByteSink sink(impl_->frame);
  sink.bytes(kTraceMagic, sizeof kTraceMagic);
  sink.raw(kTraceVersion);
  const std::size_t start = impl_->begin_frame();
  impl_->frame += header_to_json(header);
  impl_->end_frame(FrameType::header, start);
}

TraceWriter::~TraceWriter() {
  if (!impl_ || impl_->fd < 0 || impl_->broken || !impl_->in_step || impl_->sequence.empty()) return;
  // A destructor may run because of an exception: what cannot be written now is lost, and the trace says so
  // by its end.
  try {
    impl_->write_step(FrameType::partial_step);
  } catch (const MachineError&) {
  }
}

bool TraceWriter::enabled() const { return impl_ != nullptr; }

TraceLevel TraceWriter::level() const { return impl_ ? impl_->header.level : TraceLevel::off; }

void TraceWriter::begin_step(int64_t step) {
  if (!impl_) return;
  LOCKSTEP_CHECK(!impl_->in_step, "begin_step inside a step: " + impl_->path);
  LOCKSTEP_CHECK(step > impl_->last_step, "steps of a trace must increase: " + impl_->path);
  impl_->in_step = true;
  impl_->step = step;
}

void TraceWriter::samples(std::span<const int64_t> ids) {
  if (impl_) impl_->add({.dtype = DType::int64, .name = "samples"}).ids(ids);
}

void TraceWriter::random(std::string_view stream, uint64_t hash, uint64_t draws) {
  if (impl_) impl_->add_stream({.kind = RecordKind::random, .phase = Phase::random, .name = stream}, hash, draws);
}

void TraceWriter::scalar(Phase phase, std::string_view name, double value, Sharing sharing) {
  if (!impl_) return;
  const bool replicated = sharing == Sharing::replicated;
  impl_->add({.kind = RecordKind::scalar, .phase = phase, .replicated = replicated, .dtype = DType::float64, .name = name})
      .raw(value);
}

template <typename Number>
static double sum_of_products(const TensorView& tensor) {
  const auto* x = static_cast<const Number*>(tensor.data);
  const auto* y = static_cast<const Number*>(tensor.dot_with);
  double sum = 0;
  for (int64_t i = 0; i < tensor.elements(); ++i) sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return sum;
}

/// NaN of a type that no gradient has.
static double dot_product(const TensorView& tensor) {
  if (tensor.dtype == DType::float32) return sum_of_products<float>(tensor);
  if (tensor.dtype == DType::float64) return sum_of_products<double>(tensor);
  return std::numeric_limits<double>::quiet_NaN();
}

/// As docs/trace.md has it: a tensor with a placement is hashed by its rows.
static TensorStats stats_of(TensorView tensor) {
  std::vector<int64_t> positions;
  if (tensor.placement && !tensor.shape.empty()) {
    positions.resize(static_cast<std::size_t>(tensor.shape[0]));
    std::iota(positions.begin(), positions.end(), tensor.placement->offset[0]);
    tensor.row_positions = positions;
  }
  return tensor_stats(tensor);
}

TensorStats TraceWriter::tensor(Phase phase, std::string_view name, const TensorView& tensor, Sharing sharing,
                                std::span<const int64_t> ids, Keep keep) {
  if (!impl_) return {};
  LOCKSTEP_CHECK(!tensor.placement || (tensor.placement->whole.size() == tensor.shape.size() &&
                                       tensor.placement->offset.size() == tensor.shape.size()),
                 "a placement of other dimensions than its tensor: " + impl_->path);
  const TensorStats stats = stats_of(tensor);
  const TraceLevel level = impl_->header.level;
  // Rank 0 writes out for all what all hold alike; the others leave the hash that shows whether they do.
  const bool replicated = sharing == Sharing::replicated, spoken_for = replicated && impl_->header.rank != 0;
  const bool has_stats = !spoken_for || level == TraceLevel::stats || level == TraceLevel::full;
  const Definition what{.kind = RecordKind::tensor,
                        .phase = phase,
                        .replicated = replicated,
                        .has_stats = has_stats,
                        .has_ids = !ids.empty(),
                        .has_payload = level == TraceLevel::full || (keep == Keep::whole && !spoken_for),
                        .has_dot = has_stats && tensor.dot_with != nullptr,
                        .placement = tensor.placement,
                        .dtype = tensor.dtype,
                        .shape = tensor.shape,
                        .name = name};
  ByteSink sink = impl_->add_tensor(what, stats, ids, what.has_dot ? dot_product(tensor) : 0);
  if (what.has_payload) sink.bytes(tensor.data, static_cast<std::size_t>(tensor.elements()) * size_of(tensor.dtype));
  return stats;
}

void TraceWriter::collective(const CollectiveRecord& record) {
  if (impl_) impl_->add_call(record);
}

void TraceWriter::end_step() {
  if (!impl_) return;
  LOCKSTEP_CHECK(impl_->in_step, "end_step without begin_step: " + impl_->path);
  impl_->write_step(FrameType::step);
}

void TraceWriter::copy(const StepRecords& step) {
  if (!impl_) return;
  begin_step(step.step);
  for (const Record& record : step.records) impl_->add_record(record);
  end_step();
}

void TraceWriter::pause() {
  LOCKSTEP_CHECK(!impl_ || !impl_->in_step, "a trace pauses between steps alone");
  if (impl_) paused_ = std::move(impl_);
}

void TraceWriter::go_on() {
  if (paused_) impl_ = std::move(paused_);
}

void TraceWriter::finish() {
  if (!impl_ || impl_->fd < 0) return;
  if (impl_->in_step) impl_->write_step(FrameType::step);
  const std::size_t start = impl_->begin_frame();
  ByteSink(impl_->frame).varint(impl_->steps_written);
  impl_->end_frame(FrameType::end, start);
  if (const auto error = impl_->files.close(std::exchange(impl_->fd, -1))) {
    impl_->fail("close the trace", error);
  }
}

}  // namespace lockstep
