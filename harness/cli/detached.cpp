#include "harness/cli/detached.h"

#include <fmt/format.h>

#include <ostream>

#include "harness/base/clean_text.h"
#include "harness/base/exit_codes.h"
#include "harness/cli/guarded.h"

namespace lockstep {

int run_detached(const std::string& out_dir, Session session, const Console& console, const std::function<int(const Console& plain)>& work) {
  console.out << std::flush;
  console.err << std::flush;
  const Session noted = detach(out_dir, std::move(session), [&] {
    const Console plain{console.out, console.err};
    const int code = guarded([&] { return work(plain); }, plain);
    plain.out << std::flush;
    plain.err << std::flush;
    return code;
  });
  console.out << fmt::format("running in process {}; lockstep status {} · lockstep wait {}\n", noted.process, clean_line(out_dir), clean_line(out_dir));
  return kExitAsExpected;
}

}  // namespace lockstep
