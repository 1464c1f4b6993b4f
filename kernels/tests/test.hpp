// For tests that run one stage: memory of the kernels, calls, comparisons. A comparison that fails prints its place and
// both values, and ends its test. The same tests run on the host and on a GPU.
#pragma once

#include <cstdio>
#include <initializer_list>
#include <string>
#include <vector>

#include "../table.hpp"

using namespace rockmill::ROCKMILL_TARGET;
using namespace std::string_literals;

// rockmill_host_kernels, or rockmill_cuda_kernels, whose table has the same layout.
extern "C" const KernelTable* ROCKMILL_TABLE();
inline const KernelTable& kernels() { return *ROCKMILL_TABLE(); }

struct Test {
  const char *stage, *fact, *file;
  void (*run)();
};
inline std::vector<Test>& all_tests() {
  static std::vector<Test> tests;
  return tests;
}
// Defines a test of a stage: TEST(stage, a_statement_of_fact) { .. }
#define TEST(stage, fact)                                                       \
  static void stage##_##fact();                                                 \
  [[maybe_unused]] static const bool has_##stage##_##fact =                     \
      (all_tests().push_back({#stage, #fact, __FILE__, stage##_##fact}), true); \
  static void stage##_##fact()

struct Failed {
  std::string why;
};
[[noreturn]] inline void fail(const char* file, int line, const std::string& why) {
  throw Failed{file + ":"s + std::to_string(line) + ": " + why};
}
inline void check(const char* file, int line, const char* text, int error) {
  if (error != 0) fail(file, line, text + ": "s + kernels().error_text(error));
}
#define OK(call) check(__FILE__, __LINE__, #call, kernels().call)
// Runs a stage, and waits for it: RUN(stage, &args).
#define RUN(stage, ...) (OK(stage(&exec(), __VA_ARGS__)), wait_for_device())

inline void wait_for_device() {
  static void* const event = [] {
    void* made;
    OK(event_create(&made));
    return made;
  }();
  OK(event_record(event, nullptr));
  OK(event_synchronize(event));
}

// Bytes that no test releases. On the host, AddressSanitizer forbids those behind them.
inline void* allocate(u64 bytes, int filled_with) {
  constexpr u64 BEHIND = 256;
  void* made;
  OK(allocate(&made, bytes + BEHIND));
  OK(fill(made, filled_with, bytes, nullptr));
  kernels().forbid(static_cast<u8*>(made) + bytes, BEHIND);
  return made;
}
// Memory for results. A stage must not rely on its content.
template <class T>
T* room(u64 n) {
  return static_cast<T*>(allocate(n * sizeof(T), 0xee));
}
template <class T>
T* zeros(u64 n) {
  return static_cast<T*>(allocate(n * sizeof(T), 0));
}
template <class T>
T* memory(const std::vector<T>& values) {
  T* made = room<T>(values.size());
  OK(copy_to_device(made, values.data(), values.size() * sizeof(T), nullptr));
  return made;
}
inline u8* memory(const std::string& bytes) { return memory(std::vector<u8>(bytes.begin(), bytes.end())); }
template <class T>
std::vector<T> read(const T* from, u64 n) {
  std::vector<T> values(n);
  OK(copy_from_device(values.data(), from, n * sizeof(T), nullptr));
  wait_for_device();
  return values;
}
template <class T>
T read(const T* from) {
  return read(from, 1)[0];
}
inline std::string read_bytes(const u8* from, u64 n) {
  const std::vector<u8> bytes = read(from, n);
  return {bytes.begin(), bytes.end()};
}

inline Exec& exec() {
  constexpr u64 MAX_ENTRIES = 4096;
  static Exec made = [] {
    DeviceInfo device;
    OK(device_info(0, &device));
    const u64 bytes = kernels().scratch_bytes(MAX_ENTRIES);
    return Exec{nullptr, room<u8>(bytes), bytes, u32(device.multiprocessors), 0};
  }();
  return made;
}

inline std::string show(const std::string& bytes) {
  std::string shown = "\"";
  for (const u8 byte : bytes) {
    char code[5];
    std::snprintf(code, sizeof code, byte < ' ' || byte > '~' ? "\\x%02x" : "%c", byte);
    shown += code;
  }
  return shown + "\"";
}
inline void equal(const char* file, int line, const char* text, const std::string& found, const std::string& expected) {
  if (found != expected) fail(file, line, text + " is "s + show(found) + ", not " + show(expected));
}
inline void equal(const char* file, int line, const std::string& text, u64 found, u64 expected) {
  if (found != expected) fail(file, line, text + " is " + std::to_string(found) + ", not " + std::to_string(expected));
}
template <class T>
void equal_all(const char* file, int line, const std::string& text, const T* from,
               std::initializer_list<u64> expected) {
  const std::vector<T> found = read(from, expected.size());
  for (u64 i = 0; i < found.size(); ++i)
    equal(file, line, text + "[" + std::to_string(i) + "]", found[i], expected.begin()[i]);
}
// Two numbers, or two strings of bytes.
#define EQUAL(found, expected) equal(__FILE__, __LINE__, #found, found, expected)
// Numbers in memory of the kernels: EQUALS(sizes, 16, 32).
#define EQUALS(from, ...) equal_all(__FILE__, __LINE__, #from, from, {__VA_ARGS__})
