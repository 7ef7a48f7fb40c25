#include "harness/cli/session/background.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/base/errors.h"
#include "harness/base/json.h"
#include "harness/run/process_state.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

bool never() { return false; }

std::string problem_of(const std::string& folder) {
  try {
    read_session(folder);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

/// The detached process is a child of the test, and stays a zombie until that asks for it.
void reap(const Session& session) { ::waitpid(session.process, nullptr, 0); }

TEST(Session, ComesBackAsItWasWritten) {
  const TempFolder folder;
  Session session{"lockstep run a.yaml", "vm", 17, "", {}, 24, {}};
  write_session(folder.path(), session);
  Session back = read_session(folder.path());
  EXPECT_EQ(back.command, session.command);
  EXPECT_EQ(back.host, "vm");
  EXPECT_EQ(back.process, 17);
  EXPECT_EQ(back.runs, 24);
  EXPECT_FALSE(back.exit_code);
  session.exit_code = 5;
  write_session(folder.path(), session);
  EXPECT_EQ(read_session(folder.path()).exit_code, 5);
}

TEST(Session, IsRefusedWhereThereIsNone) {
  const TempFolder folder;
  EXPECT_THAT(problem_of(folder.path()), HasSubstr("nothing has run or been judged there"));
  EXPECT_THAT(problem_of(folder / "none"), HasSubstr("is not a folder"));
  std::ofstream(session_file(folder.path())) << "[1, 2]\n";
  EXPECT_THAT(problem_of(folder.path()), HasSubstr("is not a session file"));
}

TEST(Session, OfWhichAFieldIsOfAnotherTypeOrDamagedIsRefusedByName) {
  const TempFolder folder;
  for (const char* text : {R"({"command":5})", R"({"process":"x"})", R"({"arrays":{}})", R"({"arrays":[1]})", R"({"of_trials":1})", R"({"exit_code":null})", R"({"host":[]})", R"({"runs":1e9})"}) {
    std::ofstream(session_file(folder.path())) << text;
    EXPECT_THAT(problem_of(folder.path()), testing::AllOf(HasSubstr("session.json: '"), HasSubstr("cannot stand there"))) << text;
  }
  std::ofstream(session_file(folder.path())) << R"({"command":"a","exit_code":3})";
  EXPECT_EQ(read_session(folder.path()).exit_code, 3) << "an earlier lockstep's has no checksum";
  write_session(folder.path(), {"lockstep run a.yaml", "vm", 17, "", {}, 24, 1});
  std::string text = read_text(session_file(folder.path()));
  text.replace(text.find("\"exit_code\": 1"), 14, "\"exit_code\": 0");
  std::ofstream(session_file(folder.path())) << text;
  EXPECT_THAT(problem_of(folder.path()), HasSubstr("session.json is damaged"));
  EXPECT_EQ(in_foreground(folder.path(), {"lockstep run a.yaml", "", 0, "", {}, 3, {}}, [] { return 5; }), 5) << "it is written anew";
}

TEST(Session, OfRunsThatNobodyNotedIsWhatTheirResultsSay) {
  const TempFolder folder;
  const auto write = [&](nlohmann::json results) {
    seal(results);
    std::ofstream(folder / "results.json") << results;
  };
  write({{"rerun", "lockstep run a.yaml"}, {"summary", {{"exit_code", 1}}}});
  EXPECT_EQ(session_text(folder.path()), "ended: by results.json; 0 runs have finished; exit status 1\n  lockstep run a.yaml\n");
  EXPECT_EQ(wait_for(folder.path(), never), 1);
  write({{"summary", nlohmann::json::object()}});
  EXPECT_THAT(problem_of(folder.path()), HasSubstr("results.json: there is no 'exit_code'"));
  std::ofstream(folder / "results.json") << R"({"summary": {"exit_code": 0}})";
  EXPECT_THAT(problem_of(folder.path()), HasSubstr("results.json has no checksum"));
}

TEST(Session, OfTheForegroundIsNotedWhileItRunsAndWhenItEnds) {
  const TempFolder folder;
  const Session session{"lockstep run a.yaml", "", 0, "", {}, 3, {}};
  EXPECT_EQ(in_foreground(folder.path(), session, [&] {
    EXPECT_THAT(session_text(folder.path()), HasSubstr("in the foreground; 0 of 3 runs have finished"));
    return 5;
  }), 5);
  EXPECT_EQ(wait_for(folder.path(), never), 5);
  EXPECT_EQ(in_foreground(folder.path(), session, [&] {
    EXPECT_FALSE(read_session(folder.path()).exit_code) << "of the earlier run";
    return 0;
  }), 0);
}

TEST(Session, OfADetachedProcessStaysItsOwn) {
  const TempFolder folder;
  const Session session = detach(folder.path(), {"lockstep run a.yaml", "", 0, "", {}, 3, {}}, [&] {
    return in_foreground(folder.path(), {"another", "", 0, "", {}, 7, {}}, [] { return 5; });
  });
  EXPECT_EQ(wait_for(folder.path(), never), 5);
  reap(session);
  EXPECT_EQ(read_session(folder.path()).command, "lockstep run a.yaml");
}

TEST(Detach, RunsTheWorkElsewhereAndNotesItsOutputAndItsStatus) {
  const TempFolder folder;
  const Session session = detach(folder.path(), {"lockstep run a.yaml", "", 0, "", {}, 3, {}}, [] {
    std::printf("said by %d\n", static_cast<int>(::getsid(0) == ::getpid()));
    std::fprintf(stderr, "warned\n");
    return 5;
  });
  EXPECT_NE(session.process, ::getpid());
  EXPECT_EQ(read_session(folder.path()).process, session.process) << "it is noted before detach returns";
  EXPECT_EQ(wait_for(folder.path(), never), 5);
  reap(session);
  EXPECT_EQ(read_text(folder / "run.out"), "said by 1\n");
  EXPECT_EQ(read_text(folder / "run.err"), "warned\n");
  EXPECT_THAT(session_text(folder.path()), HasSubstr("ended: process"));
  EXPECT_THAT(session_text(folder.path()), HasSubstr("0 of 3 runs have finished; exit status 5\n  lockstep run a.yaml"));
}

TEST(Detach, IsLostWhereItsProcessDiesWithoutAStatus) {
  const TempFolder folder;
  const Session session = detach(folder.path(), {"lockstep run a.yaml", "", 0, "", {}, 3, {}}, [] {
    ::raise(SIGKILL);
    return 0;
  });
  reap(session);
  EXPECT_EQ(state_of(folder.path(), read_session(folder.path())), "lost");
  EXPECT_EQ(wait_for(folder.path(), never), std::nullopt);
  EXPECT_THAT(session_text(folder.path()), HasSubstr("run the same command again to resume"));
}

TEST(Session, OfAnotherNamespaceIsJudgedByNoProcessOfThisNumber) {
  Session session{"lockstep run a.yaml", "", 0, "", {}, 3, {}};
  session.be_this_process();
  EXPECT_EQ(state_of("", session), "running");
  ++session.started;
  EXPECT_EQ(state_of("", session), "lost") << "the number is another process's now";
  ++session.space;
  EXPECT_EQ(state_of("", session), "running") << "as far as can be seen from here";
}

TEST(Detach, IsRunningAsLongAsItsProcessIs) {
  const TempFolder folder;
  const Session session = detach(folder.path(), {"lockstep run a.yaml", "", 0, "", {}, 3, {}}, [] {
    for (;;) ::pause();
    return 0;
  });
  std::filesystem::create_directories(folder / "runs/a");
  std::ofstream(folder / "runs/a/done") << "{}";
  EXPECT_THAT(session_text(folder.path()), HasSubstr("running: process"));
  EXPECT_THAT(session_text(folder.path()), HasSubstr("1 of 3 runs have finished"));
  int asked = 0;
  EXPECT_EQ(wait_for(folder.path(), [&] { return ++asked > 2; }), std::nullopt) << "whoever waits gave up";
  ::kill(session.process, SIGKILL);
  reap(session);
}

TEST(Session, OfAnotherMachineIsTakenForRunning) {
  const TempFolder folder;
  EXPECT_EQ(state_of(folder.path(), {"x", "another-machine", 1, "", {}, 1, {}}), "running");
}

TEST(Status, SaysWhereTheStacksOfRanksThatHungAre) {
  const TempFolder folder;
  write_session(folder.path(), {"lockstep run a.yaml", "another-machine", 17, "", {}, 24, {}});
  std::filesystem::create_directories(folder / "runs/a");
  EXPECT_THAT(session_text(folder.path()), testing::Not(HasSubstr("hung")));
  write_stacks(folder / "runs/a", 3, {"#0 pause\n", {"pause"}});
  EXPECT_THAT(session_text(folder.path()), HasSubstr("rank 3 of a hung; its stacks: " + (folder / "runs/a/stacks-3.txt") + " (lockstep explain " +
                                                     (folder / "runs/a") + ")\n"));
  for (int rank = 4; rank < 10; ++rank) write_stacks(folder / "runs/a", rank, {"#0 pause\n", {"pause"}});
  EXPECT_THAT(session_text(folder.path()), HasSubstr("stacks of 2 more: "));
}

TEST(JobScript, NotesTheStatusOfWhatItRan) {
  const TempFolder folder;
  std::ofstream(folder / "job.sh") << job_script("(echo said; exit 3)", folder.path(), "a", {"--time=5"});
  const std::string script = read_text(folder / "job.sh");
  EXPECT_THAT(script, HasSubstr("#SBATCH --job-name=lockstep-a\n"));
  EXPECT_THAT(script, HasSubstr("#SBATCH --time=5\n"));
  const int status = std::system(("bash " + (folder / "job.sh") + " 2>/dev/null").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 3);
  EXPECT_EQ(read_text(folder / "run.out"), "said\n");
  Session session{"x", "vm", 0, "17", {}, 1, {}};
  write_session(folder.path(), session);
  EXPECT_EQ(read_session(folder.path()).exit_code, 3) << "noted by the script alone";
}

TEST(JobScript, WritesPathsAndOptionsAsSlurmReadsThem) {
  const std::string script = job_script("true", "/a b/50%#1", "two words", {"--comment=it's \"so\"", "-N4"});
  for (const char* line : {"#SBATCH --job-name=\"lockstep-two words\"\n", "#SBATCH --output=\"/a b/50%%#1/job.log\" --open-mode=append\n",
                           "#SBATCH \"--comment=it's \\\"so\\\"\"\n", "#SBATCH -N4\n"})
    EXPECT_THAT(script, HasSubstr(line));
  EXPECT_THROW(job_script("true", "/a\nb", "a", {}), ConfigError);
  EXPECT_THROW(job_script("true", "/a\\b", "a", {}), ConfigError);
}

TEST(Session, ThatCouldNotGoOnSaysWhy) {
  const TempFolder folder;
  write_session(folder.path(), {"x", "vm", 0, "17", {}, 1, 7});
  std::ofstream(folder / "job.log") << "started\nlockstep: the disk is full\n";
  EXPECT_EQ(last_words(folder.path()), "started\nlockstep: the disk is full\n");
}

/// Programs of Slurm's in PATH that note what they are asked, and answer as told.
class FakeSlurm {
 public:
  explicit FakeSlurm(const std::string& scancel) {
    put("sbatch", "echo \"$@\" >>" + asked_ + "; echo 17");
    put("scancel", "echo \"$@\" >>" + asked_ + "; " + scancel);
    ::setenv("PATH", (folder_.path() + ":" + before_).c_str(), 1);
  }
  ~FakeSlurm() { ::setenv("PATH", before_.c_str(), 1); }
  std::string asked() const { return read_text(asked_); }

 private:
  void put(const std::string& name, const std::string& line) const {
    std::ofstream(folder_ / name) << "#!/bin/sh\n" << line << "\n";
    std::filesystem::permissions(folder_ / name, std::filesystem::perms::owner_all);
  }
  const TempFolder folder_;
  const std::string asked_ = folder_ / "asked", before_ = std::getenv("PATH");
};

TEST(Jobs, ComeAfterOneThatSlurmMayForget) {
  const TempFolder folder;
  const FakeSlurm slurm("exit 0");
  EXPECT_EQ(submit_script(folder / "a.sh", "#!/bin/sh\n"), "17");
  EXPECT_EQ(submit_script(folder / "b.sh", "#!/bin/sh\n", "17"), "17");
  EXPECT_EQ(slurm.asked(), "--parsable " + (folder / "a.sh") + "\n--parsable --dependency=afterany:17 --kill-on-invalid-dep=yes " +
                               (folder / "b.sh") + "\n");
}

TEST(Jobs, AreTakenBack) {
  const FakeSlurm slurm("exit 0");
  EXPECT_EQ(cancel_jobs({}), "");
  EXPECT_EQ(cancel_jobs({"17"}), "; the array 17 that had been submitted is cancelled");
  EXPECT_EQ(cancel_jobs({"17", "18"}), "; the arrays 17, 18 that had been submitted are cancelled");
  EXPECT_EQ(slurm.asked(), "17\n17 18\n");
}

TEST(Jobs, ThatCannotBeTakenBackAreSaid) {
  const FakeSlurm slurm("echo no controller; exit 1");
  EXPECT_EQ(cancel_jobs({"17", "18"}), "; the arrays 17, 18 had been submitted and scancel says no controller: scancel 17 18");
}

}  // namespace
}  // namespace lockstep
