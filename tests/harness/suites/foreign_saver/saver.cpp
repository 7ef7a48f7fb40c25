// A small program that saves, correctly or with a classic mistake, and goes on from what it finds. Two shards of a few
// blocks each and a manifest; each block holds the save's step, so that a damaged one is seen by those who look.
//
//   saver METHOD save OUT STEP [WRITER]     saves step STEP
//   saver METHOD resume OUT RESULT          writes what it finds to RESULT; status 3 if it finds nothing whole

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

constexpr int kBlocks = 3, kBlockBytes = 700;

/// A failed call ends the program: nothing is reported saved that is not.
long checked(long result, const char* what) {
  if (result >= 0) return result;
  std::perror(what);
  std::exit(2);
}

std::string block_of(int step, int writer, int number) {
  std::string block = "step " + std::to_string(step) + " writer " + std::to_string(writer) + " block " +
                      std::to_string(number) + " ";
  block.resize(kBlockBytes, static_cast<char>('a' + step % 26));
  return block + "\n";
}

void write_all(int file, const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();)
    done += static_cast<std::size_t>(checked(::write(file, bytes.data() + done, bytes.size() - done), "write"));
}

void write_file(const std::string& path, int flags, int step, int writer, bool synced) {
  const int file = static_cast<int>(checked(::open(path.c_str(), O_WRONLY | O_CREAT | flags, 0644), path.c_str()));
  for (int i = 0; i < kBlocks; ++i) write_all(file, block_of(step, writer, i));
  if (synced) checked(::fsync(file), "fsync");
  checked(::close(file), "close");
}

void sync_folder(const std::string& path) {
  const int folder = static_cast<int>(checked(::open(path.c_str(), O_RDONLY | O_DIRECTORY), path.c_str()));
  checked(::fsync(folder), "fsync");
  ::close(folder);
}

void save_well(const std::string& out, int step, int writer) {
  const std::string temporary = out + "/.state." + std::to_string(::getpid());
  ::unlink(temporary.c_str());
  write_file(temporary, O_EXCL, step, writer, true);
  checked(::rename(temporary.c_str(), (out + "/state").c_str()), "rename");
  sync_folder(out);
}

void save_in_place(const std::string& out, int step, int writer) {
  write_file(out + "/state", O_TRUNC, step, writer, true);
}

void save_renamed_early(const std::string& out, int step, int writer) {
  const std::string temporary = out + "/.state.tmp";
  const int file = static_cast<int>(checked(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), "open"));
  write_all(file, block_of(step, writer, 0));
  checked(::rename(temporary.c_str(), (out + "/state").c_str()), "rename");
  for (int i = 1; i < kBlocks; ++i) write_all(file, block_of(step, writer, i));
  checked(::close(file), "close");
}

void save_after_delete(const std::string& out, int step, int writer) {
  const std::string temporary = out + "/.state." + std::to_string(::getpid());
  write_file(temporary, O_EXCL, step, writer, true);
  ::unlink((out + "/state").c_str());
  checked(::rename(temporary.c_str(), (out + "/state").c_str()), "rename");
}

void save_by_fixed_name(const std::string& out, int step, int writer) {
  const std::string temporary = out + "/.state.tmp";
  write_file(temporary, O_TRUNC, step, writer, true);
  checked(::rename(temporary.c_str(), (out + "/state").c_str()), "rename");
}

/// Ignores what write and fsync say.
void save_unchecked(const std::string& out, int step, int writer) {
  const std::string temporary = out + "/.state." + std::to_string(::getpid());
  std::FILE* file = std::fopen(temporary.c_str(), "w");
  if (file == nullptr) return;
  for (int i = 0; i < kBlocks; ++i) std::fputs(block_of(step, writer, i).c_str(), file);
  std::fclose(file);
  ::rename(temporary.c_str(), (out + "/state").c_str());
}

/// Writes a file that has no name yet, copies it, and gives the copy a name; all of it synced.
void save_by_new_calls(const std::string& out, int step, int writer) {
  const std::string temporary = out + "/.state." + std::to_string(::getpid());
  const int first = static_cast<int>(checked(::open(out.c_str(), O_RDWR | O_TMPFILE, 0644), "open"));
  for (int i = 0; i < kBlocks; ++i) write_all(first, block_of(step, writer, i));
  const int file = static_cast<int>(checked(::open(out.c_str(), O_RDWR | O_TMPFILE, 0644), "open"));
  checked(::fallocate(file, 0, 0, 100), "fallocate");
  off_t from = 0, to = 0;
  for (long left = ::lseek(first, 0, SEEK_END); left > 0;)
    left -= checked(::copy_file_range(first, &from, file, &to, static_cast<std::size_t>(left), 0), "copy_file_range");
  checked(::fdatasync(file), "fdatasync");
  const std::string unnamed = "/proc/self/fd/" + std::to_string(file);
  checked(::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, temporary.c_str(), AT_SYMLINK_FOLLOW), "linkat");
  checked(::renameat(AT_FDCWD, temporary.c_str(), AT_FDCWD, (out + "/state").c_str()), "rename");
  sync_folder(out);
}

/// As it should be, but that the file is synced after its name stands, or not at all.
void save_unsynced(const std::string& out, int step, int writer) {
  const std::string temporary = out + "/.state." + std::to_string(::getpid());
  write_file(temporary, O_EXCL, step, writer, false);
  checked(::rename(temporary.c_str(), (out + "/state").c_str()), "rename");
  sync_folder(out);
}

/// As it should be, but that nobody syncs the folder.
void save_without_folder_sync(const std::string& out, int step, int writer) {
  const std::string temporary = out + "/.state." + std::to_string(::getpid());
  write_file(temporary, O_EXCL, step, writer, true);
  checked(::rename(temporary.c_str(), (out + "/state").c_str()), "rename");
}

/// As it should be, but through a mapping.
void save_mapped(const std::string& out, int step, int writer) {
  const std::string temporary = out + "/.state." + std::to_string(::getpid());
  const int file = static_cast<int>(checked(::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL, 0644), "open"));
  const std::string block = block_of(step, writer, 0);
  checked(::ftruncate(file, static_cast<off_t>(block.size())), "ftruncate");
  void* place = ::mmap(nullptr, block.size(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  std::memcpy(place, block.data(), block.size());
  ::msync(place, block.size(), MS_SYNC);
  checked(::fsync(file), "fsync");
  checked(::rename(temporary.c_str(), (out + "/state").c_str()), "rename");
  sync_folder(out);
}

/// Each kind of call that the tracer shall see.
void save_in_every_way(const std::string& out, int step, int writer) {
  std::FILE* stream = std::fopen((out + "/stdio").c_str(), "w");
  std::fputs("by stdio\n", stream);
  std::fclose(stream);
  const int file = static_cast<int>(checked(::open((out + "/vectors").c_str(), O_RDWR | O_CREAT, 0644), "open"));
  char one[] = "one", two[] = "two";
  const iovec parts[] = {{one, 3}, {two, 3}};
  checked(::pwritev(file, parts, 2, 4), "pwritev");
  checked(::ftruncate(file, 4096), "ftruncate");
  void* place = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  std::memcpy(place, "map", 3);
  ::msync(place, 4096, MS_SYNC);
  ::munmap(place, 4096);
  ::close(file);
  std::thread([&] { write_file(out + "/thread", O_TRUNC, step, writer, false); }).join();
  if (const pid_t child = ::fork(); child == 0) {
    write_file(out + "/child", O_TRUNC, step, writer, false);
    ::_exit(0);
  } else {
    ::waitpid(child, nullptr, 0);
  }
  const std::string target = out + "/executed";
  if (const pid_t child = ::fork(); child == 0) {
    ::execl("/bin/sh", "sh", "-c", ("echo executed > '" + target + "'").c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  } else {
    ::waitpid(child, nullptr, 0);
  }
  ::mkdir((out + "/folder").c_str(), 0755);
  ::rmdir((out + "/folder").c_str());
  ::link((out + "/stdio").c_str(), (out + "/linked").c_str());
  ::symlink("stdio", (out + "/symbolic").c_str());
  ::unlink((out + "/linked").c_str());
  ::rename((out + "/thread").c_str(), (out + "/renamed").c_str());
}

int resume(const std::string& out, const std::string& result) {
  std::FILE* state = std::fopen((out + "/state").c_str(), "r");
  if (state == nullptr) {
    std::fputs("no checkpoint\n", stderr);
    return 3;
  }
  std::string text;
  char block[4096];
  for (std::size_t got = 0; (got = std::fread(block, 1, sizeof block, state)) > 0;) text.append(block, got);
  std::fclose(state);
  std::FILE* found = std::fopen(result.c_str(), "w");
  std::fwrite(text.data(), 1, text.size(), found);
  return std::fclose(found);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 64;
  const std::string method = argv[1], what = argv[2], out = argv[3];
  if (what == "resume") return resume(out, argv[4]);
  const int step = std::atoi(argv[4]), writer = argc > 5 ? std::atoi(argv[5]) : 0;
  if (method == "well") save_well(out, step, writer);
  if (method == "in_place") save_in_place(out, step, writer);
  if (method == "renamed_early") save_renamed_early(out, step, writer);
  if (method == "after_delete") save_after_delete(out, step, writer);
  if (method == "fixed_name") save_by_fixed_name(out, step, writer);
  if (method == "unchecked") save_unchecked(out, step, writer);
  if (method == "new_calls") save_by_new_calls(out, step, writer);
  if (method == "unsynced") save_unsynced(out, step, writer);
  if (method == "no_folder_sync") save_without_folder_sync(out, step, writer);
  if (method == "mapped") save_mapped(out, step, writer);
  if (method == "every_way") save_in_every_way(out, step, writer);
  return 0;
}
