#include "harness/run/host.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

namespace lockstep {
namespace {

const HostIdentity kThis{"vm", "10.0.0.1", "boot pid:[1] net:[2]"};

TEST(Host, IsOneByItsBootAndNamespacesWhateverItsName) {
  EXPECT_TRUE(same_host(kThis, kThis));
  EXPECT_TRUE(same_host(kThis, {"vm.example", "10.0.0.1", kThis.machine}));
  EXPECT_TRUE(same_host(kThis, {"vm", "192.168.0.1", kThis.machine})) << "of two interfaces";
}

TEST(Host, IsAnotherWhereOnlyTheNameIsTheSame) {
  EXPECT_FALSE(same_host(kThis, {"vm", "10.0.0.1", "other pid:[1] net:[2]"})) << "two hosts of one name";
  EXPECT_FALSE(same_host(kThis, {"vm", "10.0.0.1", "boot pid:[7] net:[8]"})) << "two containers of one name";
  EXPECT_FALSE(same_host(kThis, {"vm2", "10.0.0.2", kThis.machine})) << "two machines begun from one image of memory";
}

TEST(Host, IsToldByItsNameWhereTheKernelSaysNothing) {
  EXPECT_TRUE(same_host({"vm", "10.0.0.1", ""}, {"vm", "10.0.0.2", ""}));
  EXPECT_FALSE(same_host({"vm", "10.0.0.1", ""}, {"vm2", "10.0.0.1", ""}));
  EXPECT_FALSE(same_host(kThis, {"vm", "10.0.0.1", ""}));
}

TEST(Host, IsSeveralBySaying) {
  const HostIdentity here = this_host();
  EXPECT_TRUE(same_host(here, this_host()));
  ::setenv("LOCKSTEP_HOST", "b", 1);
  const HostIdentity named = this_host();
  ::unsetenv("LOCKSTEP_HOST");
  EXPECT_EQ(named.host, "b");
  EXPECT_FALSE(same_host(here, named));
}

/// This process's host as a container's process would see it, which the kernel gives namespaces of its own.
TEST(Host, IsAnotherInAContainerOfTheSameName) {
  const HostIdentity outside = this_host();
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ::_exit(77);
    const HostIdentity inside = this_host();
    ::_exit(inside.host == outside.host && !same_host(inside, outside) && same_host(inside, this_host()) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "the kernel gives this user no namespaces (kernel.unprivileged_userns_clone)";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lockstep
