// A bounded mutating driver, so that the readers are fuzzed wherever g++ and its sanitizers are. It sees no coverage,
// only whether an input was taken (0) or refused (-1). The same corpus, seed and --executions give the same inputs.
//
//   lockstep-fuzz READER CORPUS... [--seconds S] [--seed N] [--executions N] [--max-bytes N] [--artifacts DIR]
//   lockstep-fuzz READER --replay FILE
//   lockstep-fuzz trace_corpus DIR
//
// Exits 0 after the time or the executions. An input that crashes, throws, trips a sanitizer, takes longer
// than 10 s or more than 2 GiB of memory is written to DIR/crash-<hash>; its path and the command that replays it are printed.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/readers.h"

extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;
using Bytes = std::string;

constexpr unsigned kInputSeconds = 10;
constexpr rlim_t kMostMemoryBytes = rlim_t{2} << 30;
constexpr std::size_t kPoolSize = 512;

// What a dying process still needs, made before the input is executed: its handlers must not allocate.
const char* g_data = nullptr;
std::size_t g_size = 0;
std::string g_artifact;
std::string g_advice;
volatile sig_atomic_t g_saved = 0;

void write_all(int file, const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t written = ::write(file, data, size);
    if (written <= 0) return;
    data += written;
    size -= static_cast<std::size_t>(written);
  }
}

/// Async-signal-safe: saves the input that is being executed.
void save_input() {
  if (g_saved != 0 || g_data == nullptr || g_artifact.empty()) return;
  g_saved = 1;
  const int file = ::open(g_artifact.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0) return;
  write_all(file, g_data, g_size);
  ::close(file);
  write_all(STDERR_FILENO, g_advice.data(), g_advice.size());
}

void on_signal(int signal_number) {
  save_input();
  if (signal_number == SIGALRM) {
    constexpr char kText[] = "fuzz: the input takes longer than 10 s\n";
    write_all(STDERR_FILENO, kText, sizeof kText - 1);
    ::_exit(1);
  }
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);
}

void install_handlers() {
  const bool sanitized = __sanitizer_set_death_callback != nullptr;
  if (sanitized) __sanitizer_set_death_callback(save_input);
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int number : {SIGABRT, SIGALRM}) sigaction(number, &action, nullptr);
  // Under a sanitizer these are its own: its report says more, and its death callback saves the input.
  if (!sanitized) {
    const rlimit limit{kMostMemoryBytes, kMostMemoryBytes};
    ::setrlimit(RLIMIT_AS, &limit);
    for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(number, &action, nullptr);
  }
}

uint64_t fnv(std::string_view bytes) {
  uint64_t state = 0xcbf29ce484222325u;
  for (const char byte : bytes) state = (state ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
  return state;
}

struct Options {
  std::string program, name;
  lockstep::Reader reader = nullptr;
  std::vector<std::string> corpora;
  double seconds = 5;
  uint64_t seed = 1;
  uint64_t executions = UINT64_MAX;
  std::size_t max_bytes = std::size_t{1} << 16;
  std::string artifacts = ".";
  std::string replay;
};

[[noreturn]] void usage(const std::string& why) {
  std::fprintf(stderr, "fuzz: %s\n", why.c_str());
  std::exit(2);
}

template <typename Number>
Number number_of(const std::string& option, const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    usage(option + " needs a number, not " + text);
  return value;
}

Options options_of(int argc, char** argv) {
  Options options;
  if (argc < 2) usage("name a reader");
  options.name = argv[1];
  options.program = argv[0] + (" " + options.name);
  options.reader = lockstep::reader_named(options.name);
  if (options.reader == nullptr) usage("there is no reader " + options.name);
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("--", 0) != 0) {
      options.corpora.push_back(word);
      continue;
    }
    if (i + 1 == argc) usage(word + " needs a value");
    const std::string value = argv[++i];
    if (word == "--seconds")
      options.seconds = number_of<double>(word, value);
    else if (word == "--seed")
      options.seed = number_of<uint64_t>(word, value);
    else if (word == "--executions")
      options.executions = number_of<uint64_t>(word, value);
    else if (word == "--max-bytes")
      options.max_bytes = number_of<std::size_t>(word, value);
    else if (word == "--artifacts")
      options.artifacts = value;
    else if (word == "--replay")
      options.replay = value;
    else
      usage("unknown option " + word);
  }
  return options;
}

Bytes read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) usage("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Bytes> read_corpora(const Options& options) {
  std::vector<fs::path> paths;
  for (const std::string& folder : options.corpora) {
    std::error_code error;
    if (!fs::is_directory(folder, error)) usage("no such corpus folder: " + folder);
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> inputs;
  for (const fs::path& path : paths) inputs.push_back(read_file(path));
  if (inputs.empty()) usage("the corpus is empty");
  return inputs;
}

/// Runs one input from a buffer of exactly its size, so that a read past its end is seen.
int execute(const Options& options, const Bytes& input) {
  std::vector<char> exact(input.begin(), input.end());
  if (options.replay.empty()) {  // a replayed input is a file already
    char hash[17];
    std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(fnv(input)));
    g_artifact = options.artifacts + "/crash-" + hash;
    g_advice = "fuzz: input saved to " + g_artifact + "; replay: " + options.program + " --replay " +
               g_artifact + "\n";
  }
  g_data = exact.data();
  g_size = exact.size();
  alarm(kInputSeconds);
  const int answer = options.reader(reinterpret_cast<const uint8_t*>(exact.data()), exact.size());
  alarm(0);
  g_data = nullptr;
  return answer;
}

/// Changes inputs: bits, bytes, runs, lines, numbers, and pieces of other inputs.
class Mutator {
 public:
  Mutator(const std::vector<Bytes>& corpus, const Options& options)
      : engine_(options.seed), max_bytes_(options.max_bytes), pool_(corpus), seeds_(corpus.size()) {
    for (const Bytes& input : corpus) collect_tokens(input);
  }

  /// The next input: a corpus file or an earlier input, changed a few times. One change is the commonest,
  /// since an input that is nearly right comes further into a reader than one that is not.
  Bytes next() {
    Bytes input = pool_[below(below(2) == 0 ? seeds_ : pool_.size())];
    do mutate(input);
    while (below(2) == 0);
    if (input.size() > max_bytes_) input.resize(max_bytes_);
    return input;
  }

  /// Inputs that the reader took are worth changing further; of the others a few.
  void remember(const Bytes& input, bool taken) {
    if (!taken && below(256) != 0) return;
    if (pool_.size() < seeds_ + kPoolSize) {
      pool_.push_back(input);
    } else {
      pool_[seeds_ + below(kPoolSize)] = input;  // the corpus itself always stays
    }
  }

 private:
  /// In [0, bound); std::mt19937_64 is fixed by the standard, distributions are not.
  std::size_t below(std::size_t bound) {
    return static_cast<std::size_t>(engine_() % std::max<std::size_t>(bound, 1));
  }

  void collect_tokens(const Bytes& input) {
    for (std::size_t i = 0; i < input.size() && tokens_.size() < 4096;) {
      std::size_t end = i;
      while (end < input.size() &&
             (std::isalnum(static_cast<unsigned char>(input[end])) || input[end] == '_'))
        ++end;
      if (end > i && end - i <= 32) tokens_.push_back(input.substr(i, end - i));
      i = std::max(end, i + 1);
    }
  }

  void mutate(Bytes& input) {
    switch (below(12)) {
      case 0:
        return flip_bit(input);
      case 1:
        return set_byte(input);
      case 2:
        return insert_random(input);
      case 3:
        return erase_run(input);
      case 4:
        return repeat_run(input);
      case 5:
        return truncate(input);
      case 6:
        return insert_token(input);
      case 7:
        return change_number(input);
      case 8:
        return change_line(input);
      case 9:
        return splice(input);
      case 10:
        return set_word(input);
      default:
        return swap_runs(input);
    }
  }

  void flip_bit(Bytes& input) {
    if (input.empty()) return;
    char& byte = input[below(input.size())];
    byte = static_cast<char>(byte ^ (1 << below(8)));
  }
  void set_byte(Bytes& input) {
    constexpr std::string_view kTelling = "\0\xff\x7f\x80\n\r\t :,;@#?-+.{}[]\"'&*|>%!0129eE\xc3\xef"sv;
    if (input.empty()) return;
    input[below(input.size())] = kTelling[below(kTelling.size())];
  }
  void insert_random(Bytes& input) {
    Bytes bytes(1 + below(8), '\0');
    for (char& byte : bytes) byte = static_cast<char>(below(256));
    input.insert(below(input.size() + 1), bytes);
  }
  void erase_run(Bytes& input) {
    if (input.empty()) return;
    input.erase(below(input.size()), 1 + below(std::min<std::size_t>(input.size(), 64)));
  }
  void repeat_run(Bytes& input) {
    if (input.empty()) return;
    const Bytes run = input.substr(below(input.size()), 1 + below(64));
    const std::size_t at = below(input.size() + 1);
    for (std::size_t times = 1 + below(16); times > 0 && input.size() < max_bytes_; --times)
      input.insert(at, run);
  }
  void truncate(Bytes& input) { input.resize(below(input.size() + 1)); }
  void insert_token(Bytes& input) {
    if (tokens_.empty()) return;
    input.insert(below(input.size() + 1), tokens_[below(tokens_.size())]);
  }
  void change_number(Bytes& input) {
    constexpr const char* kNumbers[] = {"0",
                                        "-1",
                                        "1",
                                        "2147483647",
                                        "2147483648",
                                        "nan",
                                        "inf",
                                        "-inf",
                                        "9223372036854775808",
                                        "-9223372036854775808",
                                        "1e999",
                                        "1e-999",
                                        "0x10",
                                        "18446744073709551615",
                                        "0.1.2",
                                        "1e",
                                        "99999999999999999999999999",
                                        ".",
                                        "-",
                                        "1_000"};
    const std::size_t from = input.find_first_of("0123456789", below(input.size() + 1));
    if (from == Bytes::npos) return;
    const std::size_t end = std::min(input.find_first_not_of("0123456789.eE+-", from), input.size());
    input.replace(from, end - from, kNumbers[below(std::size(kNumbers))]);
  }
  /// Deletes, repeats or moves a line.
  void change_line(Bytes& input) {
    const std::size_t middle = below(input.size() + 1);
    const std::size_t before = middle == 0 ? Bytes::npos : input.rfind('\n', middle - 1);
    const std::size_t start = before == Bytes::npos ? 0 : before + 1;
    const std::size_t newline = input.find('\n', middle);
    const std::size_t end = newline == Bytes::npos ? input.size() : newline + 1;
    const Bytes line = input.substr(start, end - start);
    const std::size_t what = below(3);
    if (what != 1) input.erase(start, end - start);
    if (what == 0) return;
    const std::size_t other = input.find('\n', below(input.size() + 1));
    input.insert(other == Bytes::npos ? 0 : other + 1, line);
  }
  void splice(Bytes& input) {
    const Bytes& other = pool_[below(pool_.size())];
    const Bytes tail = other.substr(below(other.size() + 1));
    input.resize(below(input.size() + 1));
    input += tail;
  }
  /// Lengths and counts of binary formats: a whole word of 2, 4 or 8 bytes.
  void set_word(Bytes& input) {
    constexpr uint64_t kWords[] = {0,
                                   1,
                                   0x7f,
                                   0xff,
                                   0x7fff,
                                   0xffff,
                                   0x7fffffff,
                                   0xffffffff,
                                   0x7fffffffffffffff,
                                   0xffffffffffffffff,
                                   0x100000000,
                                   0x1000000};
    const std::size_t width = std::size_t{2} << below(3);
    if (input.size() < width) return;
    const std::size_t at = below(input.size() - width + 1);
    uint64_t word = kWords[below(std::size(kWords))];
    if (below(2) == 0) {
      std::memcpy(&word, input.data() + at, width);
      word += below(16) - 8;
    }
    std::memcpy(input.data() + at, &word, width);
  }
  void swap_runs(Bytes& input) {
    if (input.size() < 2) return;
    const std::size_t length = 1 + below(std::min<std::size_t>(input.size() / 2, 32));
    const std::size_t a = below(input.size() - 2 * length + 1);
    const std::size_t b = a + length + below(input.size() - 2 * length - a + 1);
    std::swap_ranges(input.begin() + static_cast<std::ptrdiff_t>(a),
                     input.begin() + static_cast<std::ptrdiff_t>(a + length),
                     input.begin() + static_cast<std::ptrdiff_t>(b));
  }

  std::mt19937_64 engine_;
  std::size_t max_bytes_;
  std::vector<Bytes> pool_;
  std::size_t seeds_;
  std::vector<Bytes> tokens_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && argv[1] == "trace_corpus"sv) {
    lockstep::write_trace_corpus(argv[2]);
    return 0;
  }
  const Options options = options_of(argc, argv);
  install_handlers();
  if (!options.replay.empty()) {
    const int answer = execute(options, read_file(options.replay));
    std::printf("%s: %s %s\n", options.name.c_str(), options.replay.c_str(), answer == 0 ? "read" : "refused");
    return 0;
  }
  const std::vector<Bytes> corpus = read_corpora(options);
  uint64_t executions = 0, refused = 0;
  for (const Bytes& input : corpus) {
    refused += execute(options, input) != 0;
    ++executions;
  }
  Mutator mutator(corpus, options);
  const auto start = std::chrono::steady_clock::now();
  double seconds = 0;
  while (seconds < options.seconds && executions < options.executions) {
    for (int i = 0; i < 64 && executions < options.executions; ++i, ++executions) {
      const Bytes input = mutator.next();
      const bool taken = execute(options, input) == 0;
      refused += !taken;
      mutator.remember(input, taken);
    }
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  std::printf("%s: %llu executions in %.1f s (%llu read, %llu refused), corpus %zu, seed %llu, no crash\n",
              options.name.c_str(), static_cast<unsigned long long>(executions), seconds,
              static_cast<unsigned long long>(executions - refused), static_cast<unsigned long long>(refused),
              corpus.size(), static_cast<unsigned long long>(options.seed));
  return 0;
}
