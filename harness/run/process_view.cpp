#include "harness/run/process_view.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>

namespace lockstep {
namespace {

/// An open file of /proc, read from its start each time.
class ProcFile {
 public:
  explicit ProcFile(const std::string& path) : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~ProcFile() {
    if (file_ >= 0) ::close(file_);
  }
  ProcFile(const ProcFile&) = delete;
  ProcFile& operator=(const ProcFile&) = delete;
  /// Empty: the thread is gone.
  std::string text() const {
    std::array<char, 512> bytes{};
    const ssize_t n = file_ < 0 ? -1 : ::pread(file_, bytes.data(), bytes.size() - 1, 0);
    return n <= 0 ? "" : std::string(bytes.data(), static_cast<std::size_t>(n));
  }

 private:
  int file_;
};

struct Times {
  double ran_s = 0, delayed_s = 0;
};

class Thread {
 public:
  explicit Thread(const std::string& folder) : schedule_(folder + "/schedstat"), stat_(folder + "/stat") {}

  /// False: it is gone.
  bool mark() { return read(marked_); }
  /// False: it is gone. `span_s`: since the mark.
  bool since(double span_s, double& ran_s, double& without_core_s, double& uncounted_s) const {
    Times now;
    if (!read(now)) return false;
    ran_s = now.ran_s - marked_.ran_s;
    without_core_s = std::min(now.delayed_s - marked_.delayed_s, span_s);
    uncounted_s = ready() ? std::max(0.0, span_s - ran_s - without_core_s) : 0;
    return true;
  }

 private:
  bool read(Times& times) const {
    unsigned long long ran_ns = 0, delayed_ns = 0;
    if (std::sscanf(schedule_.text().c_str(), "%llu %llu", &ran_ns, &delayed_ns) != 2) return false;
    times = {static_cast<double>(ran_ns) * 1e-9, static_cast<double>(delayed_ns) * 1e-9};
    return true;
  }
  bool ready() const {
    const std::string line = stat_.text();
    const std::size_t end = line.rfind(") ");
    return end != std::string::npos && line[end + 2] == 'R';
  }

  ProcFile schedule_, stat_;
  Times marked_;  ///< zeros for one that began after the mark
};

class LiveView : public ProcessView {
 public:
  explicit LiveView(int pid) : process_(process_here(pid)), folder_("/proc/" + std::to_string(pid) + "/task") {}

  void mark(double now) override {
    marked_at_ = now;
    if (marks_++ % kMarksAListing == 0) list();
    std::erase_if(threads_, [](const auto& each) { return !each.second->mark(); });
  }

  Since since(double now) override {
    Since found;
    const double span_s = now - marked_at_;
    list();
    for (const auto& [number, thread] : threads_) {
      double ran_s = 0, without_core_s = 0, uncounted_s = 0;
      if (!thread->since(span_s, ran_s, without_core_s, uncounted_s)) continue;
      found.all_ran_s += ran_s;
      found.all_without_core_s += without_core_s;
      found.all_uncounted_s += uncounted_s;
      if (number != process_.pid) continue;
      found.ran_s = ran_s;
      found.without_core_s = without_core_s;
      found.uncounted_s = uncounted_s;
    }
    return found;
  }

  ProcessState state() override {
    ProcessState now = process_state(process_.pid);
    return now.started == process_.started ? now : ProcessState{};  // else another has its number
  }

 private:
  static constexpr int kMarksAListing = 64;

  void list() {
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator(folder_, gone)) {
      const int number = std::atoi(entry.path().filename().c_str());
      if (!threads_.contains(number)) threads_.emplace(number, std::make_unique<Thread>(entry.path().string()));
    }
  }

  ProcessId process_;
  std::string folder_;
  double marked_at_ = 0;
  int marks_ = 0;
  std::map<int, std::unique_ptr<Thread>> threads_;
};

}  // namespace

std::unique_ptr<ProcessView> live_view(int pid) { return std::make_unique<LiveView>(pid); }

}  // namespace lockstep
